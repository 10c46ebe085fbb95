"""guard_forms: the parts of a guarded version's text that are the same in all: how forms of tensors are kept and asked."""

FORMS = '''\
class Forms(list):
    """The forms of tensors that forward has been called with, the latest first.

    Of each: a function that says whether other tensors are like these in type, dtype, device, shape and strides; whether
    one wants a gradient; whether there are several devices; the numbers of the module.
    """

    MOST = 64

    def __reduce__(self):
        return Forms, ()  # the copy of a module begins anew

    def add(self, tensors, numbers):
        wanting = any(tensor.requires_grad for tensor in tensors)
        several = tensors[0].is_cuda and torch.cuda.device_count() > 1
        self[:] = [(self.check(tensors), wanting, several, numbers), *self[: self.MOST - 1]]

    @staticmethod
    def shared(tensors, changed):
        """The places of a tensor that is changed and of another one in the same memory; None where there are none."""
        try:
            memory = [tensor.untyped_storage().data_ptr() for tensor in tensors]
        except (AttributeError, RuntimeError):
            return None  # one is no tensor, or has no memory of its own: no form that is known
        if len({*memory}) == len(memory):
            return None
        for at in changed:
            others = [other for other, held in enumerate(memory) if held and held == memory[at] and other != at]
            if others:
                return at, others[0]
        return None

    @staticmethod
    def check(tensors):
        first = {}
        for at, tensor in enumerate(tensors):
            first.setdefault(id(tensor), at)
        once = [*first.values()]
        twice = [(at, first[id(tensor)]) for at, tensor in enumerate(tensors) if at != first[id(tensor)]]
        try:  # what torch.compile guards its own code with; it wants each tensor once
            from torch._C._dynamo.guards import TensorGuards

            unique = [tensors[at] for at in once]
            like = TensorGuards(*unique, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
            if like(*unique) and not twice:
                return like
            if like(*unique):
                return lambda *others: all(others[i] is others[j] for i, j in twice) and like(*[others[i] for i in once])
        except (ImportError, TypeError, RuntimeError):
            pass  # another torch

        def form(each):
            modes = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cuda" if each[0].is_cuda else "cpu")
            return modes, [
                (type(x), x.shape, x.stride(), x.dtype, x.device, x.requires_grad, x.is_neg()) for x in each
            ]

        known = form(tensors)
        return lambda *others: all(isinstance(x, torch.Tensor) for x in others) and form(others) == known
'''
KNOWN = """\
if not COMPILING():
    try:
        known = module._known_forms
    except AttributeError:
        known = ()
    for like, wanting, several, numbers in known:
        if like(*tensors)SAME:
            if wanting and torch.is_grad_enabled():
                break
            if several and tensors[0].get_device() != torch.cuda.current_device():
                break
            return None
reason = WHY_NOT(PASSED)
if reason is not None:
    return reason
if torch.is_grad_enabled() and [tensor for tensor in tensors if tensor.requires_grad]:
    return "gradients are wanted and its kernels have no backward: call it under torch.no_grad()"
if torch.is_autocast_enabled("cuda" if tensors[0].is_cuda else "cpu"):
    return "torch.autocast is on, which this version does not follow"
if tensors[0].is_cuda and tensors[0].get_device() != torch.cuda.current_device():
    return f"its tensors are on {tensors[0].device}, and cuda:{torch.cuda.current_device()} is the current device"
if not COMPILING():
    if [tensor for tensor in tensors if tensor.is_neg()]:
        return "a tensor is a negated view, whose memory holds the opposite of its values"
    module.__dict__.setdefault("_known_forms", Forms()).add(tensors, NUMBERS)
return None
"""
"""The tensors are one tuple, which torch's check is given as it is: to name each of them costs a tenth of a call.
Nothing here calls a builtin, since an argument of forward may have its name."""
