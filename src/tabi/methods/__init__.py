"""Methods: one file an algorithm."""

from tabi.methods.base import AbstractMethod, Question
from tabi.methods.gti import GTI

__all__ = ["GTI", "AbstractMethod", "Question"]
