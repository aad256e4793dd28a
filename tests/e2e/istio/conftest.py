"""The fixtures of the tests beside Istio."""

from istio_meshes import mesh
from istio_stack import istio

__all__ = ["istio", "mesh"]
