"""A figure that notebooks show."""

import io
import warnings

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure without pyplot, which a notebook shows when it is the value of a cell.

    pyplot would show its figures at the end of the cell as well.
    """

    def _repr_png_(self) -> bytes:
        return self.png()

    def png(self) -> bytes:
        """Returns the picture as a PNG file."""
        file = io.BytesIO()
        with warnings.catch_warnings():
            # Characters that no font has become boxes, and very long names leave less room.
            warnings.filterwarnings("ignore", "Glyph|constrained_layout", UserWarning)
            self.savefig(file, format="png")
        return file.getvalue()
