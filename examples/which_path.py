"""The pictures of docs/which-path.md: densities between a posterior and two functions f.

Left, f is a narrow window in the tail: the geometric path walks there. Right, f is the indicator
of x > 4: on the geometric path f^beta = f, so there is nothing in between; the level path falls
towards the event first.
"""

import sys

import numpy as np

from tabi.paths import GeometricPath, LevelPath
from tabi.paths.level import DECADES
from tabi.plots import STYLE, load_matplotlib
from tabi.state import Scalars

X = np.linspace(-4, 8, 1201)
LOG_PI = -0.5 * X**2


def normalised(log_density):
    density = np.exp(log_density - log_density.max())
    return density / (density.sum() * (X[1] - X[0]))


def curves():
    """Titles and densities, [rung, x], of the three panels."""
    window = Scalars(LOG_PI, -2.0 * (X - 5.0) ** 2, np.ones_like(X))
    event = np.where(X > 4, 0.0, -np.inf)
    indicator = Scalars(LOG_PI, event, (X > 4).astype(float), level=X - 4)
    geometric, level = GeometricPath(), LevelPath(sharp_at=1.0)
    taus = (1.0, 0.5, 0.33, 0.2)
    sharpness = [0.0, *(0.5 - np.log10(tau) / (2 * DECADES) for tau in taus), 1.0]
    return {
        "f a window: geometric path": [
            normalised(geometric.log_density(window, b)) for b in (0, 0.05, 0.15, 0.35, 1)
        ],
        "f = 1(x > 4): geometric path": [
            normalised(geometric.log_density(indicator, b)) for b in (0, 0.05, 0.15, 0.35, 1)
        ],
        "f = 1(x > 4): level path": [
            normalised(level.log_density(indicator, b)) for b in sharpness
        ],
    }


def main(path="which-path.png"):
    matplotlib, new_figure = load_matplotlib()
    panels = curves()
    with matplotlib.rc_context(STYLE):
        figure = new_figure((11, 3.2))
        axes = figure.subplots(1, len(panels), sharey=True)
        for one, (title, densities) in zip(axes, panels.items(), strict=True):
            for i, density in enumerate(densities):
                one.plot(X, density, color=matplotlib.colormaps["viridis"](i / len(densities)))
            one.set_title(title)
            one.set_xlabel("x")
            one.set_ylim(0, 2)
        axes[0].set_ylabel("density of a rung")
        figure.savefig(path, dpi=130)
    return panels


if __name__ == "__main__":
    main(*sys.argv[1:])
