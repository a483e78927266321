"""Codes of bundles: writing them, and reading them before they run."""

from __future__ import annotations

from ddtreec.core.codes.entry import Code

AGAIN = "Compile it again with `ddtreec compile`."

BUNDLE: dict[str, Code] = {
    "B010": Code(
        "the output is a link or a file, not a folder",
        "-o names a folder, new or written by ddtreec.",
        "A file of that name, or a link.",
        "Name another folder.",
        "ddtreec compile tiny-k2-cpu -o notes.txt",
    ),
    "B011": Code(
        "the output folder holds something else",
        "A folder that ddtreec did not write is never replaced.",
        "A folder of your own was named.",
        "Name a new folder, or empty this one yourself.",
        "ddtreec compile tiny-k2-cpu -o .",
    ),
    "B012": Code(
        "the disk is full",
        "A bundle appears whole or not at all.",
        "No space is left.",
        "Free some space, or name another disk with -o.",
        "a full disk",
    ),
    "B013": Code(
        "no permission to write or read",
        "The folder may be written.",
        "It belongs to somebody else, or the disk is read-only.",
        "Name a folder you may write.",
        "-o /engine",
    ),
    "B014": Code(
        "the output path is too long",
        "The system bounds the length of names.",
        "A very long name.",
        "Choose a shorter -o.",
        "-o with a name of 300 letters",
    ),
    "B015": Code(
        "the bundle cannot be written or read",
        "The system lets files be written.",
        "The message says what the system refused.",
        "Name another folder.",
        "a quota, or a broken disk",
    ),
    "B016": Code(
        "not a manifest",
        "manifest.json has exactly the fields of the format.",
        "It was edited, or is of another version.",
        AGAIN,
        "a manifest.json that ends in the middle",
    ),
    "B017": Code(
        "a bundle without a readable plan, spec or kernel table",
        "plan.json, spec.json and, of a CUDA bundle, kernels.json are there and of a format this ddtreec reads.",
        "They were edited, or are of another version.",
        AGAIN,
        "a plan.json that ends in the middle",
    ),
    "B020": Code(
        "there is no such bundle",
        "A bundle is a folder with manifest.json.",
        "A typing error, the folder above, an engine spec, or a compile that stopped before the bundle.",
        "Give the folder that `ddtreec compile` printed.",
        "ddtreec run tiny-k2-cpu",
    ),
    "B021": Code(
        "the manifest cannot be read",
        "manifest.json is the JSON that compile wrote.",
        "It was edited or damaged.",
        AGAIN,
        "a manifest.json that is a web page",
    ),
    "B022": Code(
        "a bundle of another format",
        "The runtime reads one format of bundle and plan.",
        "Compiler and runtime are of different versions.",
        "Compile it again with the version that runs it.",
        "a bundle of a newer ddtreec",
    ),
    "B023": Code(
        "a file of the bundle is missing",
        "Every file of the manifest is there, plan and step program among them.",
        "A copy that broke off.",
        "Copy it again, or compile it again.",
        "step.py is gone",
    ),
    "B024": Code(
        "a file of the bundle was changed",
        "Files have the sha256 that the manifest says.",
        "It was edited after it was compiled.",
        "Compile it again; to try a change, change the spec or the template.",
        "a hand-edited step.py",
    ),
    "B025": Code(
        "the plan cannot be read",
        "plan.json has exactly the fields of its format.",
        "It was edited, or is of another version.",
        AGAIN,
        "a plan.json of another version",
    ),
    "B026": Code(
        "the step program lacks a program",
        "step.py defines each program that the plan names.",
        "It was edited.",
        AGAIN,
        "def target renamed",
    ),
    "B027": Code(
        "the bundle is for a device that is not here",
        "A bundle runs on the kind of device it was compiled for.",
        "A GPU bundle on a machine without one.",
        "Compile for this machine: --set topology=cpu.",
        "a rtx-pro-6000 bundle on a laptop",
    ),
    "B029": Code(
        "the engine is closed",
        "An engine that was closed is not used again.",
        "A call behind close() or behind the end of a with block.",
        "Load it again with Engine.load.",
        "engine.close(); engine.generate(...)",
    ),
    "B030": Code(
        "NVRTC is not there",
        "The binaries of a CUDA bundle are made by NVRTC and its Python bindings; no GPU is needed.",
        "ddtreec was installed without its cuda extra.",
        "pip install 'ddtreec[cuda]', or stop before the binaries with --to src.",
        "ddtreec compile tiny-k2-h200-x1 in a fresh environment",
    ),
    "B031": Code(
        "a kernel does not compile",
        "NVRTC compiles every kernel for the arch of the topology.",
        "A hand-edited kernel, a damaged install of NVRTC, or an arch that this NVRTC does not know.",
        "Correct the file that is named; a kernel that nobody edited is a bug of ours to report.",
        "a kernel in DIR of --override that lacks a brace",
    ),
    "B032": Code(
        "a kernel needs more than the device has",
        "No kernel spills registers, and static and dynamic shared memory together fit a block.",
        "A hand-edited kernel, or a topology whose devices are smaller than any we tried.",
        "Undo the edit; or choose another topology, and report a kernel that nobody edited.",
        "a kernel in DIR of --override with too large an array",
    ),
    "B033": Code(
        "a file of --override replaces nothing",
        "The folder holds kernels (.cu) and headers (.cuh) called as those in src/kernels and src/cuh of the bundle, "
        "with the same entry points.",
        "A typing error, a renamed entry point, or an engine whose kernels have other parameters.",
        "Compile with --to src -o DIR and take a file from there.",
        "--override edits, where edits/linear.cu is no kernel of the engine",
    ),
}
