import pytest
from matplotlib.figure import Figure

from qdq_workbench.errors import DataError, OutputPathError
from qdq_workbench.report import Curve, Level, curves_figure, write_curves_html, write_curves_png

CURVES = [Curve("control", (0, 1, 2), (0.9, 0.91, 0.92)), Curve("QAT", (0, 1, 2), (0.88, 0.91, 0.93))]


def test_figure_shows_percentages_of_every_curve():
    figure = curves_figure(CURVES, [Level("FP32", 0.9)])

    assert [list(trace.y) for trace in figure.data] == [[90.0, 91.0, 92.0], [88.0, 91.0, 93.0]]
    assert [trace.name for trace in figure.data] == ["control", "QAT"]
    assert figure.layout.shapes[0].y0 == 90.0
    assert (figure.layout.shapes[0].name, figure.layout.shapes[0].showlegend) == ("FP32 90.00", True)


def test_curves_differ_in_colour_and_in_dash():
    lines = [trace.line for trace in curves_figure(CURVES).data]

    assert lines[0].color != lines[1].color
    assert lines[0].dash != lines[1].dash


@pytest.mark.parametrize(
    ("values", "ends"),
    [((0.9, 0.9), (87.5, 92.5)), ((0.5, 0.9), (48, 92)), ((0.998, 1.0), (95.25, 100.25)), ((0.1, 1.0), (1.25, 100.25))],
)
def test_one_image_more_or_less_does_not_look_like_a_collapse(values, ends):
    low, high = curves_figure([Curve("QAT", (0, 1), values)]).layout.yaxis.range

    assert low <= 100 * min(values) < 100 * max(values) + 0.2 <= high
    assert (low, high) == pytest.approx(ends)


def test_names_bring_no_markup_into_the_figure():
    figure = curves_figure([Curve("<b onclick=x>", (0,), (0.5,))], [Level("<i>", 0.5)], title="<u>")

    assert "<b" not in figure.to_json()
    assert figure.layout.shapes[0].name == "&lt;i> 50.00"


def test_html_needs_no_network_and_offers_no_upload(tmp_path):
    page = write_curves_html(tmp_path / "curves.html", CURVES).read_text()

    assert "<script src=" not in page
    assert "cdn.plot.ly/plotly" not in page
    assert len(page) > 1_000_000  # plotly itself is inside
    assert '"showSendToCloud": false' in page
    assert '"displaylogo": false' in page  # the logo links to plotly's makers


def test_png_has_its_size_and_survives_dollar_signs(tmp_path):
    path = write_curves_png(tmp_path / "curves.png", [Curve("$x_$", (0,), (0.5,))], [Level("a$b$c_", 0.4)])

    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(header[16:20], "big"), int.from_bytes(header[20:24], "big")) == (1200, 750)


@pytest.mark.parametrize(
    ("curves", "levels", "named"),
    [(CURVES, [], ["control", "QAT"]), ([], [Level("FP32", 0.9)], ["FP32 90.00"])],
)
def test_png_has_a_legend_with_every_line(curves, levels, named, tmp_path, monkeypatch):
    legends = []
    save = Figure.savefig

    def savefig(figure, *args, **kwargs):
        legends.append([text.get_text() for text in figure.axes[0].get_legend().get_texts()])
        save(figure, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", savefig)
    write_curves_png(tmp_path / "curves.png", curves, levels)
    assert legends == [named]


@pytest.mark.parametrize(("epochs", "accuracy"), [((), ()), ((0, 1), (0.5,))])
def test_a_curve_without_a_point_for_each_epoch_is_refused(epochs, accuracy):
    with pytest.raises(DataError, match="Received"):
        Curve("broken", epochs, accuracy)


@pytest.mark.parametrize("write", [write_curves_png, write_curves_html])
def test_an_unwritable_path_is_a_named_error(write, tmp_path):
    with pytest.raises(OutputPathError, match="missing"):
        write(tmp_path / "missing" / "curves", CURVES)
