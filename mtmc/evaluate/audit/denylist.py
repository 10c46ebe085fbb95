"""What no kernel needs, by name: modules, dotted paths, attributes, built-in functions. Data of `.rules` and `.audit`."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FORBIDDEN_MODULES = _words(
    """
    os sys subprocess socket ctypes cffi gc inspect threading _thread multiprocessing concurrent asyncio signal
    importlib imp builtins io pathlib shutil tempfile pickle marshal shelve pty fcntl mmap resource select ssl
    http urllib requests ftplib smtplib code codeop runpy pkgutil zipimport atexit faulthandler tracemalloc
    traceback linecache weakref site platform posix nt psutil glob fileinput dis types contextvars unittest
    """
)
"""Never importable, whatever the reference imports."""
REACHED = _words(
    """
    os sys subprocess socket ctypes gc inspect threading _thread multiprocessing importlib builtins bltns pathlib
    shutil tempfile pickle marshal traceback linecache atexit weakref pkgutil runpy zipimport unittest asyncio posix
    cpp_extension ctypeslib _sys _os _osp _io _ctypes _socket _weakref _weakrefset
    """
)
"""Refused as an attribute of anything: torch itself imports os. (Some forbidden modules share their name with honest
attributes, such as torch.select.)"""
REACHED_BY_PATH = _words(
    """
    io contextlib re stdlib_re mp concurrent zipfile tarfile glob platform argparse selectors logging statistics
    struct dis textwrap hashlib uuid datetime time queue keyword mock ssl knobs
    """
)
"""Refused on a path that starts at an imported module; elsewhere they are honest names."""

FORBIDDEN_PATHS = {
    "torch.multiprocessing": "processes",
    "torch.distributed": "processes and network",
    "torch.nn.parallel": "threads",
    "torch.nn.DataParallel": "threads",
    "torch.futures": "threads",
    "torch.hub": "the network",
    "torch.package": "files",
    "torch.load": "files",
    "torch.save": "files",
    "torch.from_file": "files",
    "torch.serialization": "files",
    "torch.PyTorchFileReader": "files",
    "torch.PyTorchFileWriter": "files",
    "torch.import_ir_module": "files",
    "torch.import_ir_module_from_buffer": "code that the evaluator does not see",
    "torch.CompilationUnit": "code that the evaluator does not see",
    "torch.cpp": "torch's inside",
    "torch.fork": "threads",
    "torch.ThroughputBenchmark": "threads",
    "torch.storage": "files and raw memory",
    "torch.export": "files",
    "torch.onnx": "files",
    "torch.monitor": "files",
    "torch.profiler": "the profiler, which others look through",
    "torch.autograd.profiler": "the profiler, which others look through",
    "torch.autograd.profiler_util": "the profiler, which others look through",
    "torch.autograd.profiler_legacy": "the profiler, which others look through",
    "torch.cuda.profiler": "the profiler, which others look through",
    "torch.overrides": "a hand in other people's torch calls",
    "torch.library": "a hand in other people's torch calls",
    "torch.jit": "code that the evaluator does not see",
    "torch.fx": "code that the evaluator does not see",
    "torch.cuda.jiterator": "code that the evaluator does not see",
    "torch.mps": "code that the evaluator does not see",
    "torch.testing": "torch's inside",
    "torch.utils": "files, processes and torch's inside",
    "torch.ops.load_library": "binaries",
    "torch.classes": "binaries",
    "torch.cuda.cudart": "the driver",
    "torch.cuda.gds": "files",
    "torch.cuda.green_contexts": "contexts that the evaluator does not watch",
    "torch.cuda.GreenContext": "contexts that the evaluator does not watch",
    "torch.cuda.ExternalStream": "streams that the evaluator does not watch",
    "torch.cuda.streams.ExternalStream": "streams that the evaluator does not watch",
    "torch.cuda.get_stream_from_external": "streams that the evaluator does not watch",
    "torch.cuda.tunable": "files",
    "torch.cuda.change_current_allocator": "binaries",
    "torch.cuda.memory.change_current_allocator": "binaries",
    "torch.cuda.CUDAPluggableAllocator": "binaries",
    "torch.cuda.memory.CUDAPluggableAllocator": "binaries",
    "torch.cuda.list_gpu_processes": "other people's processes",
    "torch.cuda.memory.list_gpu_processes": "other people's processes",
    "torch.cuda.memory_snapshot": "other people's memory",
    "torch.cuda.memory.memory_snapshot": "other people's memory",
    "torch.compile": "another compiler: a version must stand on torch and triton alone",
    "torch.compiler.compile": "another compiler: a version must stand on torch and triton alone",
    "torch.compiler.load_cache_artifacts": "binaries",
    "triton.compiler": "triton's inside",
    "triton.compile": "triton's inside",
    "triton.backends": "triton's inside",
    "triton.experimental": "triton's inside",
    "triton.knobs": "triton's inside",
    "triton.profiler": "the profiler, which others look through",
    "triton.tools": "triton's inside",
    "triton.runtime.build": "binaries",
    "triton.runtime.cache": "files",
    "triton.runtime.driver": "the driver",
    "triton.runtime.interpreter": "triton's inside",
    "triton.testing.Mark": "files",
    "triton.testing.perf_report": "files",
    "triton.testing.set_gpu_clock": "processes",
    "numpy.load": "files",
    "numpy.save": "files",
    "numpy.savez": "files",
    "numpy.savez_compressed": "files",
    "numpy.memmap": "files",
    "numpy.fromfile": "files",
    "numpy.fromregex": "files",
    "numpy.loadtxt": "files",
    "numpy.savetxt": "files",
    "numpy.genfromtxt": "files",
    "numpy.DataSource": "files and the network",
    "numpy.lib": "files and raw memory",
    "numpy.core": "numpy's inside",
    "numpy.matrixlib": "numpy's inside",
    "numpy.testing": "processes",
    "numpy.f2py": "binaries",
    "functools.update_wrapper": "attributes by computed names",
    "functools.singledispatch": "evaluated strings",
    "dataclasses.asdict": "attributes by computed names",
    "dataclasses.astuple": "attributes by computed names",
    "dataclasses.replace": "attributes by computed names",
    "dataclasses.fields": "attributes by computed names",
    "dataclasses.make_dataclass": "evaluated strings",
    "enum.global_enum": "other modules' names",
    "copy.copyreg": "attributes by computed names",
    "copy.replace": "attributes by computed names",
    "typing.get_args": "types out of annotations",
    "typing.get_origin": "types out of annotations",
    "typing_extensions.get_args": "types out of annotations",
    "typing_extensions.get_origin": "types out of annotations",
    "functools.singledispatchmethod": "evaluated strings",
    "operator.attrgetter": "attributes by computed names",
    "operator.methodcaller": "attributes by computed names",
    "typing.ForwardRef": "evaluated strings",
    "typing.get_type_hints": "evaluated strings",
    "typing.evaluate_forward_ref": "evaluated strings",
    "typing.types": "code objects",
    "typing_extensions.ForwardRef": "evaluated strings",
    "typing_extensions.get_type_hints": "evaluated strings",
    "typing_extensions.get_annotations": "evaluated strings",
    "typing_extensions.evaluate_forward_ref": "evaluated strings",
    "dataclasses.types": "code objects",
    "enum.types": "code objects",
}
FORBIDDEN_NAMES = _words(
    """
    exec eval compile __import__ open breakpoint globals __builtins__ __loader__ __spec__ load_inline
    __array_interface__ __array_struct__ __cuda_array_interface__ __instancecheck__ __subclasscheck__ __match_args__
    __torch_function__ __torch_dispatch__ __annotations__ __annotate__ __dataclass_fields__
    interpreter_semantic _InterpreterComparison _InterpreterLoop
    """
)
FORBIDDEN_BUILTINS = _words("vars locals help license credits copyright input exit quit")
"""Names that are honest where a function binds them itself."""
NOT_TO_DERIVE = _words(
    """
    torch.Tensor torch.masked.MaskedTensor torch.nn.Parameter torch.nn.Buffer torch.nn.UninitializedParameter
    torch.nn.UninitializedBuffer torch.nn.parameter.Parameter torch.nn.parameter.Buffer
    torch.nn.parameter.UninitializedParameter torch.nn.parameter.UninitializedBuffer
    torch.nn.parameter.UninitializedTensorMixin torch.nn.parameter._ParameterMeta torch.nn.parameter._BufferMeta
    """
)
"""Classes whose subclasses could answer for themselves in the checker."""
BY_NAME = _words("getattr setattr delattr")
"""Functions that reach an attribute by a name."""
FORBIDDEN_ATTRIBUTES = REACHED | _words(
    """
    __globals__ __builtins__ __subclasses__ __bases__ __base__ __mro__ mro __code__ __closure__ __getattribute__
    __reduce__ __reduce_ex__ __import__ __loader__ __spec__ __dict__ __self__ __objclass__ __traceback__
    __array_interface__ __array_struct__ __cuda_array_interface__ __match_args__
    func_globals CodeType FunctionType
    f_back f_code f_globals f_locals f_builtins gi_frame gi_code cr_frame cr_code ag_frame ag_code tb_frame tb_next
    get_capture_scope used_global_vals _unsafe_update_src _src raw_src rewriter rewritten_fn device_caches
    tofile fromfile from_file memmap dump read_file write_file load_inline load_library
    _write_file _set_from_file _new_with_file _new_with_weak_ptr _new_shared _new_shared_cuda _new_shared_fd_cpu
    _new_shared_filename_cpu _new_using_fd_cpu _new_using_filename_cpu _share_cuda_ _share_fd_cpu_ _share_filename_cpu_
    _shared_incref _shared_decref _release_ipc_counter _release_ipc_counter_cuda _get_shared_fd _get_filename
    share_memory share_memory_ ipc_handle from_ipc_handle from_buffer from_address _set_cdata _cdata _weak_ref
    _free_weak_ref _import_dotted_name _C _C_engine _C_flatbuffer as_subclass _make_subclass
    _make_wrapper_subclass py_impl py_functionalize_impl register_module_forward_hook register_module_forward_pre_hook
    register_module_backward_hook register_module_full_backward_hook register_module_full_backward_pre_hook
    register_module_buffer_registration_hook register_module_module_registration_hook
    register_module_parameter_registration_hook
    raw_numbers raw_dtypes raw_headers raw_nvrtc_library raw_driver_library raw_code raw_name raw_options raw_declared
    raw_values raw_array raw_functions raw_shared raw_lock raw_taken raw_sizes raw_parameters raw_bytes raw_load
    raw_function raw_compiled raw_folders raw_includes raw_nvrtc raw_driver raw_checked
    """
)
OF_KERNELS = _words("src fn base_fn hash params arg_names run configs pre_run_hooks signature kernel cache_key")
"""Attributes of Triton's kernels: who assigns them makes another kernel of one that was read."""
OWN_DUNDERS = _words(
    """
    __all__ __version__ __author__ __doc__ __slots__ __constants__ __hash__ __call__ __repr__ __str__ __eq__ __iter__
    __len__ __getitem__
    """
)
"""The only dunder names that may be assigned as plain names."""
DEFINED = _words("__reduce__")
"""What a class may say of its own objects although nobody may ask it of others: how they are copied."""
FOREIGN = (FORBIDDEN_MODULES | REACHED_BY_PATH | _words("torch triton np _utils obj")) - _words("select")
"""Refused as an attribute of anything that is not the file's own. (An AttributeError has its module as `obj`.)"""
MODULES = re.compile(
    r"""
    torch\.(accelerator|amp|ao|autograd|backends|compiler|cpu|cuda|distributions|fft|func|functional|linalg|masked|mtia
            |nested|nn|ops|optim|quantization|quasirandom|random|return_types|signal|sparse|special|torch_version
            |types|version|windows|xpu)
    | torch\.backends\.\w+ | torch\.(ao|distributions|optim|nn\.modules|nn\.attention|nn\.intrinsic|nn\.qat|nn\.quantizable
             |nn\.quantized)\.([a-z]\w*\.)*(?!register_|kl_divergence|sdpa_kernel|flex_attention\.)[a-z]\w*
    | torch\.nn\.(attention|common_types|functional|grad|init|intrinsic|modules|parameter|qat|quantizable|quantized)
    | torch\.nn\.utils\.(fusion|init|memory_format|parametriz\w+|prune|rnn|stateless)
    | torch\.autograd\.(anomaly_mode|forward_ad|function|functional|grad_mode|graph|variable)
    | torch\.cuda\.(amp|comm|gds|graphs|green_contexts|jiterator|memory|nccl|nvtx|random|sparse|streams)
    | torch\.(accelerator|cpu|mtia|xpu)\.(amp|graphs|memory|random|streams) | torch\.ops\.[a-z]\w*
    | torch\.(amp|cuda\.amp|cpu\.amp)\.(autocast_mode|grad_scaler) | torch\.signal\.windows
    | triton\.(errors|language|runtime|testing)
    | triton\.language\.(core|extra|math|random|semantic|standard|target_info)(\.[a-z]\w*)?
    | triton\.runtime\.(autotuner|errors|jit)
    | numpy\.(char|dtypes|emath|exceptions|fft|linalg|ma|polynomial|random|rec|strings|typing)
    | collections\.abc
    | (torch|triton|numpy|typing|dataclasses|collections)\.([a-z]\w*\.)*
      (F|np|tl|torch|triton|functools|itertools|warnings|collections|operator|math)
    """,
    re.VERBOSE,
)
"""Modules that nothing forbidden stands in, but whose own imports lead on."""
LAYERS = re.compile(r"triton\.Config|torch\.nn\.(modules\.\w+\.)?(?!Module\b|Parameter\b|Buffer\b|Uninit)[A-Z]\w*")
"""Classes that honest files hand around, as in `norm=nn.LayerNorm`."""
