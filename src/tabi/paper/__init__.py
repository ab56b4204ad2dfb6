"""The problems of the paper, with exact answers."""

from tabi.paper.problems import Problem, banana, gaussian

__all__ = ["Problem", "banana", "gaussian"]
