"""A figure that notebooks show."""

import io

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
        self.savefig(file, format="png")
        return file.getvalue()
