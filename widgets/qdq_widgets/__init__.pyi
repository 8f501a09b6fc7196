# The types of the public names, for type checkers and editors: at run time every name is loaded when first used.
from qdq_widgets.errors import BenchBusyError, BenchError
from qdq_widgets.graph_comparison import GraphComparison
from qdq_widgets.graph_page import write_graph_page
from qdq_widgets.graph_view import GraphView
from qdq_widgets.netron_server import NetronServer
from qdq_widgets.picture import write_graph_picture
from qdq_widgets.workbench import Workbench

__all__ = [
    "BenchBusyError",
    "BenchError",
    "GraphComparison",
    "GraphView",
    "NetronServer",
    "Workbench",
    "write_graph_page",
    "write_graph_picture",
]
