"""cuda: a kernel written in CUDA C++, compiled by NVRTC and launched through the driver. It needs torch alone.

    from mtmc.cuda import RawKernel

    CODE = r'''
    extern "C" __global__ void scale(const float* x, float* y, float factor, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = factor * x[i];
    }
    '''
    scale = RawKernel(CODE, "scale")
    scale((n + 255) // 256, 256, (x, y, 0.5, n))

A kernel version in CUDA C++ imports it. In a file that is handed out the class itself stands in place of the import
(`standalone`), so that such a file needs no mtmc: hence it imports where it uses, and has no helpers beside it.
"""

from __future__ import annotations

from typing import Any, ClassVar


class RawKernel:
    """One `__global__` function. It is compiled for a device when it is first launched there.

    code: CUDA C++. name: of the function; of a template with its arguments, "softmax<float, 256>". options: of NVRTC.

    Called with grid and block (an integer, or up to three), args (tensors for pointers, numbers for the rest), and
    shared_mem, bytes of dynamic shared memory. It runs on torch's current stream of the tensors' device.

    Raises (constructor): ValueError where the code has no such function, or a parameter that cannot be passed.
    Raises (call): TypeError, ValueError or OverflowError for arguments that the parameters do not take; RuntimeError where
    NVRTC or the driver refuses.

    What it has besides is no business of a version: all of it begins with raw_, so that the audit can tell.
    """

    raw_numbers: ClassVar[dict[str, str]] = {
        "bool": "c_bool", "char": "c_int8", "signed char": "c_int8", "unsigned char": "c_uint8", "int8_t": "c_int8",
        "uint8_t": "c_uint8", "short": "c_int16", "unsigned short": "c_uint16", "int16_t": "c_int16",
        "uint16_t": "c_uint16", "int": "c_int32", "unsigned": "c_uint32", "unsigned int": "c_uint32",
        "int32_t": "c_int32", "uint32_t": "c_uint32", "long": "c_int64", "long int": "c_int64", "long long": "c_int64",
        "long long int": "c_int64", "unsigned long": "c_uint64", "unsigned long long": "c_uint64", "int64_t": "c_int64",
        "uint64_t": "c_uint64", "size_t": "c_uint64", "ptrdiff_t": "c_int64", "float": "c_float", "double": "c_double",
        "__half": "c_uint16", "half": "c_uint16", "__nv_bfloat16": "c_uint16", "nv_bfloat16": "c_uint16",
    }  # fmt: skip
    # Types of parameters that are numbers -> those of ctypes.
    raw_dtypes: ClassVar[dict[str, str]] = {
        "float": "float32", "double": "float64", "__half": "float16", "half": "float16", "__nv_bfloat16": "bfloat16",
        "nv_bfloat16": "bfloat16", "int": "int32", "int32_t": "int32", "long long": "int64", "long": "int64",
        "int64_t": "int64", "short": "int16", "int16_t": "int16", "int8_t": "int8", "signed char": "int8",
    }  # fmt: skip
    # What a pointer points to -> what its tensor must hold; others take any tensor.
    raw_headers: ClassVar[dict[str, str]] = {
        "stdint.h": "typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; "
        "typedef unsigned short uint16_t; typedef int int32_t; typedef unsigned int uint32_t; typedef long long int64_t; "
        "typedef unsigned long long uint64_t; typedef uint64_t uintptr_t; typedef int64_t intptr_t;\n",
        "limits.h": "#define INT_MAX 2147483647\n#define INT_MIN (-INT_MAX - 1)\n#define UINT_MAX 4294967295u\n"
        "#define LLONG_MAX 9223372036854775807ll\n#define LLONG_MIN (-LLONG_MAX - 1)\n",
        "float.h": "#define FLT_MAX 3.402823466e+38f\n#define FLT_MIN 1.175494351e-38f\n#define FLT_EPSILON "
        "1.192092896e-07f\n#define DBL_MAX 1.7976931348623158e+308\n#define DBL_EPSILON 2.2204460492503131e-16\n",
        "math.h": "#define INFINITY (__int_as_float(0x7f800000))\n#define NAN (__int_as_float(0x7fffffff))\n"
        "#define M_PI 3.14159265358979323846\n#define M_SQRT1_2 0.70710678118654752440\n"
        "#define M_SQRT2 1.41421356237309504880\n#define M_2_SQRTPI 1.12837916709551257390\n",
        "cuda_runtime.h": "",
        "algorithm": "namespace std {\ntemplate <class T> __device__ T max(T a, T b) { return a < b ? b : a; }\n"
        "template <class T> __device__ T min(T a, T b) { return b < a ? b : a; }\n}\n",
        "limits": "namespace std {\ntemplate <class T> struct numeric_limits;\n"
        "template <> struct numeric_limits<float> {\n"
        "__device__ static constexpr float max() { return 3.402823466e+38f; }\n"
        "__device__ static constexpr float min() { return 1.175494351e-38f; }\n"
        "__device__ static constexpr float lowest() { return -3.402823466e+38f; }\n"
        "__device__ static constexpr float epsilon() { return 1.192092896e-07f; }\n"
        "__device__ static float infinity() { return __int_as_float(0x7f800000); }\n};\n"
        "template <> struct numeric_limits<int> {\n"
        "__device__ static constexpr int max() { return 2147483647; }\n"
        "__device__ static constexpr int min() { return -2147483647 - 1; }\n"
        "__device__ static constexpr int lowest() { return -2147483647 - 1; }\n};\n}\n",
    }
    # Of the host's headers that CUDA files include, what NVRTC lacks. Those of C++ ("cstdint") are the same.

    raw_nvrtc_library: ClassVar[Any] = None
    raw_driver_library: ClassVar[Any] = None

    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        import ctypes
        import threading

        self.raw_code, self.raw_name, self.raw_options = code, name, tuple(options)
        self.raw_declared = self.raw_parameters(code, name)
        self.raw_values: list[Any] = [
            ctypes.c_void_p() if points else getattr(ctypes, self.raw_numbers[kind])()
            for kind, points, _ in self.raw_declared
        ]
        self.raw_array = (ctypes.c_void_p * max(1, len(self.raw_values)))(*map(ctypes.addressof, self.raw_values))
        self.raw_functions: dict[int, Any] = {}  # by index of the device
        self.raw_shared: dict[int, int] = {}  # the most dynamic shared memory that was asked for there
        self.raw_lock = threading.Lock()  # values are filled in and launched by one thread at a time

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
        """Launch it. See the class."""
        import torch

        values = self.raw_taken(args)
        devices = [arg.get_device() for arg in args if isinstance(arg, torch.Tensor)]
        index = devices[0] if devices else torch.cuda.current_device()
        if any(each != index or each < 0 for each in devices):
            raise ValueError(f"{self.raw_name}: all tensors must be on one GPU, they are on {devices} (-1: on the CPU)")
        sizes = (*self.raw_sizes(grid, "grid"), *self.raw_sizes(block, "block"))
        if index not in self.raw_functions:
            with torch.cuda.device(index):
                self.raw_functions[index] = self.raw_load(index)
        function = self.raw_functions[index]
        if shared_mem > self.raw_shared.get(index, 48 << 10):
            self.raw_checked(
                self.raw_driver().cuFuncSetAttribute(function, 8, shared_mem)
            )  # its largest dynamic shared size
            self.raw_shared[index] = shared_mem
        stream = torch._C._cuda_getCurrentRawStream(index)
        with self.raw_lock:
            for place, value in zip(self.raw_values, values):  # noqa: B905 - as many, see `raw_taken`
                place.value = value
            error = self.raw_driver().cuLaunchKernel(function, *sizes, shared_mem, stream, self.raw_array, None)
        if error:
            self.raw_checked(error)

    def raw_taken(self, args: Any) -> list[Any]:
        """What is passed for each argument. Raises: TypeError, ValueError, OverflowError."""
        import struct

        import torch

        declared, values = self.raw_declared, list[Any]()
        if len(args) != len(declared):
            names = ", ".join(name for _, _, name in declared)
            raise TypeError(f"{self.raw_name} takes {len(declared)} arguments ({names}), got {len(args)}")
        for arg, (kind, points, name) in zip(args, declared, strict=True):
            if points:
                if not (arg is None or isinstance(arg, torch.Tensor)):
                    raise TypeError(f"{self.raw_name}: {name} is a pointer, so a tensor is passed for it, not {arg!r}")
                dtype = None if arg is None else str(arg.dtype)[6:]
                if dtype is not None and self.raw_dtypes.get(kind, dtype) != dtype:
                    raise TypeError(f"{self.raw_name}: {name} points to {kind}, and its tensor holds {dtype}")
                values.append(0 if arg is None else arg.data_ptr())
            elif isinstance(arg, torch.Tensor) or not isinstance(arg, (int, float)):
                raise TypeError(
                    f"{self.raw_name}: {name} is a {kind}, so a number is passed for it, not {type(arg).__name__}"
                )
            elif kind in ("float", "double"):
                values.append(float(arg))
            elif "half" in kind:
                values.append(int.from_bytes(struct.pack("<e", arg), "little"))
            elif "bfloat16" in kind:
                bits = int.from_bytes(struct.pack("<f", arg), "little")
                values.append(bits + 0x7FFF + (bits >> 16 & 1) >> 16 & 0xFFFF)  # to the nearest, even where two are
            elif isinstance(arg, float):
                raise TypeError(f"{self.raw_name}: {name} is a {kind}, and {arg!r} is no whole number")
            else:
                values.append(arg)
                bits = {"c_bool": 1}.get(self.raw_numbers[kind]) or 8 * self.raw_bytes(kind)
                signed = not self.raw_numbers[kind].startswith(("c_uint", "c_bool"))
                if not -(1 << (bits - 1)) * signed <= arg < 1 << (bits - signed):
                    raise OverflowError(f"{self.raw_name}: {arg} does not fit {name}, a {kind}")
        return values

    @staticmethod
    def raw_sizes(given: Any, what: str) -> tuple[int, int, int]:
        """Three sizes from a grid or block, which may be an integer or shorter. Raises: ValueError."""
        sizes = (given,) if isinstance(given, int) else tuple(given)
        if not 1 <= len(sizes) <= 3 or not all(isinstance(size, int) and size > 0 for size in sizes):
            raise ValueError(f"a {what} is up to three whole numbers above 0, got {given!r}")
        return (*sizes, *(1,) * (3 - len(sizes)))

    @classmethod
    def raw_parameters(cls, code: str, name: str) -> list[tuple[str, bool, str]]:
        """(type without const and the like, whether it is a pointer, name) of each parameter of a function in a text.

        Raises: ValueError where there is no such function, or a parameter is neither a pointer nor a number.
        """
        import re

        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", code, flags=re.DOTALL)
        base = re.escape(name.partition("<")[0].strip().rpartition("::")[2])
        head = re.search(rf"\b__global__\b[^;{{}}]*?\b{base}\s*\(", text)
        if head is None:
            raise ValueError(f"the CUDA text has no __global__ function {name!r}")
        template = re.findall(r"\btemplate\s*<([^<>]*)>", text[: head.start()].rpartition("}")[2].rpartition(";")[2])
        names = [words.split()[-1:] for words in template[-1].split(",")] if template else []
        given = name.partition("<")[2].rpartition(">")[0].split(",")
        meant = {key[0]: value.strip() for key, value in zip(names, given) if key}  # noqa: B905 - some may have defaults
        parts, depth = [""], 1
        for letter in text[head.end() :]:
            depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(letter, 0)
            if not depth:
                break
            if letter == "," and depth == 1:
                parts.append("")
            else:
                parts[-1] += letter
        found = []
        for part in parts if "".join(parts).split() not in ([], ["void"]) else ():
            words = r"\b(?:const|volatile|__restrict__|__restrict|restrict|__grid_constant__)\b|\bstd::|\[.*"
            plain = re.sub(words, " ", part, flags=re.DOTALL)
            kind, _, rest = plain.rpartition("*") if "*" in plain else (" ".join(plain.split()[:-1]), "", plain)
            kind, points = " ".join(kind.partition("*")[0].split()), "*" in part or "[" in part
            kind = meant.get(kind, kind)
            if not points and kind not in cls.raw_numbers:
                raise ValueError(
                    f"{name}: the parameter {' '.join(part.split())!r} is neither a pointer nor a number that can be "
                    f"passed; numbers are {', '.join(cls.raw_numbers)}"
                )
            found.append((kind, points, "".join(rest.split()[-1:])))
        return found

    @classmethod
    def raw_bytes(cls, kind: str) -> int:
        """Bytes of a number."""
        import ctypes

        return ctypes.sizeof(getattr(ctypes, cls.raw_numbers[kind]))

    def raw_load(self, index: int) -> Any:
        """The function on a device, compiled for it."""
        import torch

        major, minor = torch.cuda.get_device_capability(index)
        architecture = f"sm_{major}{minor}" + "a" * (major >= 9)
        return self.raw_function(*self.raw_compiled(self.raw_code, self.raw_name, self.raw_options, architecture))

    @classmethod
    def raw_function(cls, binary: bytes, lowered: str) -> Any:
        """A function of a binary, loaded on the present device. Raises: RuntimeError."""
        import ctypes

        driver, module, function = cls.raw_driver(), ctypes.c_void_p(), ctypes.c_void_p()
        cls.raw_checked(driver.cuModuleLoadData(ctypes.byref(module), binary))
        cls.raw_checked(driver.cuModuleGetFunction(ctypes.byref(function), module, lowered.encode()))
        return function

    @classmethod
    def raw_compiled(cls, code: str, name: str, options: tuple[str, ...], architecture: str) -> tuple[bytes, str]:
        """The binary of a text for an architecture ("sm_90a"), and what a function is called in it.

        Raises: RuntimeError with what NVRTC says; OSError where there is no NVRTC.
        """
        import ctypes

        library, program = cls.raw_nvrtc(), ctypes.c_void_p()
        headers = {
            **cls.raw_headers,
            **{f"c{key[:-2]}": text for key, text in cls.raw_headers.items() if key[0] != "c" and key[-2:] == ".h"},
        }
        given = [f"--gpu-architecture={architecture}", "--std=c++17", "--device-as-default-execution-space", "-w"]
        given += [*(f"-I{folder}" for folder in cls.raw_includes()), *options]

        def texts(values: Any) -> Any:
            return (ctypes.c_char_p * len(values))(*(value.encode() for value in values))

        def size_and_text(ask_size: Any, ask: Any) -> bytes:
            size = ctypes.c_size_t()
            ask_size(program, ctypes.byref(size))
            buffer = ctypes.create_string_buffer(size.value)
            ask(program, buffer)
            return buffer.raw

        contents = [f"#pragma once\n{text}" for text in headers.values()]
        code_bytes, count = code.encode(), len(headers)
        made = library.nvrtcCreateProgram(
            ctypes.byref(program), code_bytes, b"kernel.cu", count, texts(contents), texts(list(headers))
        )
        if made:
            raise RuntimeError(f"NVRTC makes no program of the CUDA text (error {made})")
        try:
            library.nvrtcAddNameExpression(program, name.encode())
            error = library.nvrtcCompileProgram(program, len(given), texts(given))
            if error:
                log = size_and_text(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
                raise RuntimeError(f"NVRTC error {error}\n{log.rstrip(bytes(1)).decode(errors='replace')}")
            lowered = ctypes.c_char_p()
            library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(lowered))
            binary = size_and_text(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN)
            return binary, (lowered.value or name.encode()).decode()
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    @staticmethod
    def raw_folders(*patterns: str) -> list[str]:
        """Folders and files that match below those where Python's packages of NVIDIA, torch and triton lie."""
        import glob
        import importlib.util
        import os

        roots = []
        for name in ("nvidia", "torch", "triton"):
            spec = importlib.util.find_spec(name)
            roots += list(spec.submodule_search_locations or ()) if spec is not None else []
        roots.append(os.environ.get("CUDA_HOME") or "/usr/local/cuda")
        return [found for pattern in patterns for root in roots for found in sorted(glob.glob(f"{root}/{pattern}"))]

    @classmethod
    def raw_includes(cls) -> list[str]:
        """Where CUDA's own headers lie: those of NVRTC's version first, then triton's, which are more (mma.h is)."""
        runtime = cls.raw_folders("*/include/cuda_fp16.h", "include/cuda_fp16.h")[:1]
        library = cls.raw_folders(
            "*/include/cuda/std/cstdint", "*/include/cccl/cuda/std/cstdint", "include/cuda/std/cstdint"
        )
        found = [*runtime, *cls.raw_folders("backends/nvidia/include/cuda_fp16.h")]
        return [path.rpartition("/")[0] for path in found] + [path.rpartition("/cuda/")[0] for path in library[:1]]

    @classmethod
    def raw_nvrtc(cls) -> Any:
        """NVRTC's library. Raises: OSError."""
        import ctypes
        import glob

        if cls.raw_nvrtc_library is None:
            folders = ("lib", "*/lib", "lib64", "targets/*/lib")
            found = cls.raw_folders(
                *(f"{folder}/libnvrtc{rest}.so*" for folder in folders for rest in ("", "-[0-9a-f]*"))
            )
            for path in [*found, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]:
                if "builtins" in path or ".alt." in path:
                    continue
                try:
                    # It looks for the other half by name, and does not find it beside itself in every release.
                    for other in glob.glob(f"{path.rpartition('/')[0]}/libnvrtc-builtins*.so*") if "/" in path else ():
                        if ".alt." not in other:  # the half of another library, with the same names inside
                            ctypes.CDLL(other, ctypes.RTLD_GLOBAL)
                    cls.raw_nvrtc_library = ctypes.CDLL(path)
                    break
                except OSError:
                    continue
            else:
                raise OSError("there is no NVRTC to compile CUDA C++ with: pip install nvidia-cuda-nvrtc-cu12")
        return cls.raw_nvrtc_library

    @classmethod
    def raw_driver(cls) -> Any:
        """The driver's library, with the types of what is called. Raises: OSError."""
        if cls.raw_driver_library is None:
            import ctypes

            library = ctypes.CDLL("libcuda.so.1")
            pointer, number = ctypes.c_void_p, ctypes.c_uint
            library.cuModuleLoadData.argtypes = [pointer, ctypes.c_char_p]
            library.cuModuleGetFunction.argtypes = [pointer, pointer, ctypes.c_char_p]
            library.cuFuncSetAttribute.argtypes = [pointer, ctypes.c_int, ctypes.c_int]
            library.cuLaunchKernel.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]
            library.cuGetErrorString.argtypes = [ctypes.c_int, pointer]
            cls.raw_driver_library = library
        return cls.raw_driver_library

    @classmethod
    def raw_checked(cls, error: int) -> None:
        """Raises: RuntimeError with the driver's words for an error."""
        import ctypes

        if error:
            text = ctypes.c_char_p()
            cls.raw_driver().cuGetErrorString(error, ctypes.byref(text))
            raise RuntimeError(f"CUDA error {error}: {(text.value or b'unknown').decode()}")


def standalone(text: str) -> str:
    """A version's text with the class itself in place of its import, so that it runs where there is no mtmc.

    A text that does not import it is given back. Raises: SyntaxError or ValueError if it is no Python.
    """
    import ast
    import inspect

    if f"from {__name__} import" not in text:
        return text
    lines = text.split("\n")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and node.module == __name__:
            own = f"from typing import Any, ClassVar\n\n\n{inspect.getsource(RawKernel)}"
            lines[node.lineno - 1 : node.end_lineno] = own.rstrip().split("\n")
            break
    return "\n".join(lines)
