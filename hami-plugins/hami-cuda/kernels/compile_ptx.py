"""Compile a file of CUDA C++ to PTX with NVRTC from its wheel: `compile_ptx.py image.cu image.ptx`. It needs no GPU.

A target that ends with .cpp becomes C++ that defines the PTX as text: `compile_ptx.py image.cu image_ptx.cpp` defines
hami_cuda::kImagePtx.
"""

from __future__ import annotations

import ctypes
import sys
from importlib.util import find_spec
from pathlib import Path

OPTIONS = ("--gpu-architecture=compute_60", "--std=c++17", "--fmad=false")


def find_nvrtc() -> Path:
    """Return the path of NVRTC 11 in the wheel nvidia-cuda-nvrtc-cu11.

    Raises:
        SystemExit: it is not installed.
    """
    spec = find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    for folder in folders:
        for library in sorted(folder.glob("cuda_nvrtc/lib/libnvrtc.so.11*")):
            return library
    raise SystemExit("NVRTC 11 is not installed: pip install nvidia-cuda-nvrtc-cu11")


def compile_ptx(source: Path) -> bytes:
    """Return the PTX of a file; headers beside it are found.

    Raises:
        SystemExit: the file does not compile; the message is NVRTC's log.
    """
    nvrtc = ctypes.CDLL(str(find_nvrtc()))
    program = ctypes.c_void_p()
    check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, 0, 0))
    options = [option.encode() for option in (*OPTIONS, f"--include-path={source.resolve().parent}")]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    if status:
        log = read(nvrtc, program, "ProgramLog")
        raise SystemExit(f"{source} does not compile:\n{log.decode(errors='replace')}")
    return read(nvrtc, program, "PTX")


def read(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """Return the log or the PTX of a program, without the final zero."""
    size = ctypes.c_size_t()
    check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.value


def check(nvrtc: ctypes.CDLL, status: int) -> None:
    """Raise SystemExit with NVRTC's text if `status` is an error."""
    if status:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise SystemExit(f"NVRTC failed: {nvrtc.nvrtcGetErrorString(status).decode()}")


def as_cpp(ptx: bytes, name: str) -> bytes:
    """Return C++ that defines the PTX of `name`.cu."""
    text = f'extern const char k{name.title()}Ptx[];\nconst char k{name.title()}Ptx[] = R"ptx({ptx.decode()})ptx";\n'
    return f"// The PTX of {name}.cu.\nnamespace hami_cuda {{\n{text}}}  // namespace hami_cuda\n".encode()


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    ptx = compile_ptx(source)
    target.write_bytes(as_cpp(ptx, source.stem) if target.suffix == ".cpp" else ptx)
