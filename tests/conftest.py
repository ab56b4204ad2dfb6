"""What every test shares."""

import os

# Figures are drawn without a display; set before anything imports matplotlib.
os.environ.setdefault("MPLBACKEND", "agg")
