"""Codes of running on a GPU."""

from __future__ import annotations

from ddtreec.core.codes.entry import Code

DEVICE: dict[str, Code] = {
    "B040": Code(
        "a call of the CUDA driver failed",
        "Every call succeeds, and every round leaves its record.",
        "A kernel of ours that is wrong, a driver that is older than the bundle needs, or a GPU in trouble.",
        "`ddtreec doctor`, then `ddtreec verify BUNDLE`; report it if both find nothing.",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
    ),
    "B041": Code(
        "not enough memory on the GPU",
        "What one rank holds fits into the memory that is free.",
        "Another program uses the GPU, or the context is long.",
        "Close the other program, or compile with a shorter context or fewer sequences.",
        "a second engine on one GPU",
    ),
    "B042": Code(
        "kernels for another GPU",
        "A bundle's binaries are for the generation of the GPU that runs them.",
        "The bundle was compiled for another topology.",
        "Compile for a topology of this GPU: --set topology=NAME.",
        "a bundle for sm_120 on an H200",
    ),
    "B043": Code(
        "no bindings of the CUDA driver",
        "A bundle for a GPU needs the package cuda-bindings.",
        "ddtreec was installed without its CUDA extra.",
        "pip install 'ddtreec[cuda]'.",
        "a GPU machine with the plain installation",
    ),
    "B044": Code(
        "the kernel table cannot be read",
        "kernels.json is in the bundle and of the format that this runtime reads.",
        "It was edited, or compiler and runtime are of different versions.",
        "Compile it again with `ddtreec compile`.",
        "a kernels.json of a newer ddtreec",
    ),
    "B045": Code(
        "more than one GPU",
        "This runtime runs one rank on a GPU.",
        "A bundle that was compiled for several GPUs.",
        "Compile for one device, or for the ranks of a CPU; `ddtreec bench --rank 0 --synthetic` measures one rank.",
        "ddtreec run of a bundle for eight GPUs",
    ),
    "B046": Code(
        "a kernel computes something else",
        "Every kernel gives what its parts give on the CPU, within its tolerance.",
        "A driver or a GPU in trouble, a hand-edited kernel, or a bug of ours.",
        "Look at the rows that are not ok; report them.",
        "ddtreec verify of a bundle with an edited kernel",
    ),
}
