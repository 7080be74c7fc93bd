"""What all figures share: colors, text, and where they are drawn."""

import functools
import io
import warnings
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names
from matplotlib.text import Text

INK, FAINT = "#404040", "#d9d9d9"
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")  # distinguishable by the color-blind
_LARGEST = 20.0
# What Linux, macOS and Windows have for Chinese characters, which matplotlib's own fonts lack.
_CHINESE = ("Noto Sans CJK SC", "WenQuanYi Micro Hei", "PingFang SC", "Microsoft YaHei")


class Picture(Figure):
    """A figure without pyplot, which a notebook shows when it is the value of a cell.

    pyplot would show its figures at the end of the cell as well.
    """

    def draw(self, renderer) -> None:
        """Draws the figure, with a second font in texts with Chinese characters."""
        for text in self.findobj(Text):
            if max(text.get_text(), default="") > "\u2e80":
                text.set_fontfamily([*dict.fromkeys([*text.get_fontfamily(), *_chinese_fonts()])])
        super().draw(renderer)

    def png(self) -> bytes:
        """Returns the picture as a PNG file."""
        file = io.BytesIO()
        with warnings.catch_warnings():
            # Characters that no font has become boxes, and very long names leave less room.
            warnings.filterwarnings("ignore", "Glyph|constrained_layout", UserWarning)
            self.savefig(file, format="png")
        return file.getvalue()

    _repr_png_ = png


@functools.cache
def _chinese_fonts() -> list[str]:
    return [name for name in _CHINESE if name in get_font_names()]


def new_figure(width: float, height: float, layout: str | None = "constrained") -> Picture:
    """Returns an empty figure of at most 20 by 20 inches, on white in every theme."""
    size = min(width, _LARGEST), min(height, _LARGEST)
    return Picture(figsize=size, dpi=110, facecolor="white", layout=layout)


def new_axes(width: float, height: float) -> Axes:
    """Returns the axes of a new figure."""
    return new_figure(width, height).add_subplot(facecolor="white")


def set_title(axes: Axes, title: str) -> None:
    """Writes a title above the left edge; "$" does not begin a formula."""
    axes.set_title(title, loc="left", fontsize=11, color=INK, parse_math=False)


def finish_axes(axes: Axes, title: str, x: str = "", y: str = "") -> None:
    """Writes the title and names of axes; removes the frame and the ticks, but not their labels."""
    set_title(axes, title)
    if x:
        axes.set_xlabel(x, color=INK)
    if y:
        axes.set_ylabel(y, color=INK)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=INK, labelsize=9, length=0)


def draw_grid(axes: Axes) -> None:
    """Draws faint lines behind the data and around it."""
    axes.grid(color=FAINT, lw=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.spines[:].set_color(FAINT)


def draw_legend(axes: Axes, **place: object) -> None:
    """Draws the legend, by default where there is room; "$" does not begin a formula."""
    legend = axes.legend(frameon=False, fontsize=9, labelcolor=INK, **place)
    for text in legend.get_texts():
        text.set_parse_math(False)


def name_cells(axes: Axes, columns: Sequence[str], rows: Sequence[str], rotation: float) -> None:
    """Writes the names of a picture's columns below them and those of its rows beside them."""
    anchor = dict(ha="right", va="center", rotation_mode="anchor") if rotation else {}
    axes.set_xticks(range(len(columns)), columns, rotation=rotation, parse_math=False, **anchor)
    axes.set_yticks(range(len(rows)), rows, parse_math=False)


def check_shape(name: str, values: np.ndarray, *shape: int | None) -> np.ndarray:
    """Returns `values` as an array, which must have this shape; None is any size."""
    array = np.asarray(values)
    fits = array.ndim == len(shape) and all(
        size in (None, actual) for size, actual in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name} has the shape {list(array.shape)}: it must be [{wanted}]")
    return array
