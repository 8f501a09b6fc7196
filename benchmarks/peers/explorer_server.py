"""Serve a graph in Model Explorer: `explorer_server.py nodes.json PORT`, in an environment with ai-edge-model-explorer.

The file holds a list of nodes, `{"name", "class", "namespace", "edges": [[source, its output, own input], ...]}`.
"""

import json
import pathlib
import sys

import model_explorer
from model_explorer.graph_builder import Graph, GraphCollection, GraphNode, IncomingEdge

nodes = [
    GraphNode(
        id=node["name"],
        label=node["class"],
        namespace=node["namespace"],
        incomingEdges=[IncomingEdge(source, str(output), str(index)) for source, output, index in node["edges"]],
    )
    for node in json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
]
config = model_explorer.config()
config.graphs_list.append({"graphCollections": [GraphCollection("model", [Graph("model", nodes)])]})
config.model_sources.append({"url": "graphs://model/0"})
model_explorer.visualize_from_config(config, port=int(sys.argv[2]), no_open_in_browser=True)
