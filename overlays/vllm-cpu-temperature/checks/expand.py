"""Run inside the patched engine: per-request values reach every token, whatever their dtype."""

import torch
from vllm.utils.cpu_triton_utils import _expand_kernel_impl

cases = 0
for dtype in (torch.float32, torch.int32, torch.int64):
    values = torch.tensor([2, 0, 3], dtype=dtype)
    output = torch.full((6,), 9, dtype=dtype)
    _expand_kernel_impl(output, values, torch.tensor([2, 5, 6], dtype=torch.int32), 0, 1)
    cases += output.tolist() == [2, 2, 1, 1, 1, 3]
temperatures = torch.tensor([0.8, 0.0])
output = torch.empty(3)
_expand_kernel_impl(output, temperatures, torch.tensor([1, 3], dtype=torch.int32), 0, 1)
cases += torch.allclose(output, torch.tensor([0.8, 1.0, 1.0]))
print(f"expand is right in {cases} of 4 cases")
