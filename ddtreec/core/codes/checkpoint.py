"""Codes of checkpoints: what the audit says before any weight is loaded, and what loading says."""

from __future__ import annotations

from ddtreec.core.codes.entry import Code

AGAIN = "Fetch the file again."

CHECKPOINT: dict[str, Code] = {
    "K001": Code(
        "a checkpoint folder or file cannot be read",
        "--weights names a folder that exists and may be read.",
        "A typing error, a file instead of its folder, or no permission.",
        "Check the path.",
        "--weights model.safetensors",
    ),
    "K002": Code(
        "a folder without safetensors files",
        "A checkpoint is a folder with .safetensors files.",
        "Weights of another format, or the folder above.",
        "Give the folder that holds them; convert other formats.",
        "--weights . with only .bin files there",
    ),
    "K003": Code(
        "the index of the weights is damaged",
        "model.safetensors.index.json maps tensor names to files.",
        "A partial download.",
        AGAIN,
        "an index that ends in the middle",
    ),
    "K004": Code(
        "weight files are missing",
        "Every file that the index or the numbering names is there.",
        "A partial download.",
        "Fetch the files that are named.",
        "model-00003-of-00064.safetensors is gone",
    ),
    "K005": Code(
        "a weight file is empty",
        "A weight file holds data.",
        "A download that failed or a full disk.",
        AGAIN,
        "a file of 0 bytes",
    ),
    "K006": Code(
        "a file is not what its name says",
        "A .safetensors file holds tensors.",
        "A Git-LFS pointer, a web page of an error, or an archive under the wrong name.",
        "Fetch the data itself (git lfs pull, or a download with access).",
        "a file of 130 bytes that begins with `version https://git-lfs`",
    ),
    "K007": Code(
        "the head of a weight file is damaged",
        "A safetensors file begins with the length of its head and the head as JSON.",
        "Another format, or damage.",
        AGAIN,
        "a head of 10^18 bytes",
    ),
    "K008": Code(
        "a weight file is truncated",
        "The file is as long as its head says.",
        "A download that broke off.",
        AGAIN,
        "the last tensor ends behind the end of the file",
    ),
    "K009": Code(
        "the tensors of a file overlap or leave gaps",
        "Tensors lie one after another without gaps, as the format asks.",
        "A tool that writes something else.",
        "Write the file again with safetensors.",
        "two tensors at the same bytes",
    ),
    "K010": Code(
        "a tensor is not in the file the index names",
        "The index says where each tensor is.",
        "Files of two releases in one folder.",
        "Fetch the whole checkpoint of one release.",
        "an index of 64 shards beside 30 others",
    ),
    "K011": Code(
        "a tensor is in two files",
        "Each tensor is there once.",
        "Files of two releases in one folder.",
        "Remove the files that do not belong there.",
        "model.safetensors beside its shards",
    ),
    "K012": Code(
        "no checkpoint for some weights",
        "Both the target and the drafter have a checkpoint where the bundle needs them.",
        "--drafter-weights was left out.",
        "Give the checkpoint, or decode with --speculation off.",
        "a bundle with a drafter and --weights alone",
    ),
    "K020": Code(
        "tensors are missing from the checkpoint",
        "Every tensor that the plan names is there.",
        "Another model, another prefix, or renamed tensors.",
        "Check the path; make the spec of this checkpoint with `ddtreec init`.",
        "model.layers.* where language_model.model.layers.* is planned",
    ),
    "K021": Code(
        "a tensor has a type that cannot be",
        "Dense tensors are BF16, F16 or F32; packed ones I32 with float scales.",
        "An FP8 or otherwise quantised release.",
        "Use a bf16 or INT4 release.",
        "F8_E4M3 weights",
    ),
    "K022": Code(
        "a tensor has another shape than the plan reads",
        "Shapes are those of the spec.",
        "A spec of another size of the model.",
        "Make the spec of this checkpoint with `ddtreec init`.",
        "[151936, 7168] where 163840 rows are planned",
    ),
    "K023": Code(
        "scales of packed weights are missing",
        "Each packed tensor has its scales.",
        "A partial or hand-made checkpoint.",
        "Fetch the checkpoint again.",
        "up_proj.weight_packed without up_proj.weight_scale",
    ),
    "K024": Code(
        "another INT4 group than the plan expects",
        "`group` of the quant spec is that of the checkpoint.",
        "A quant spec of another release.",
        "Set the group that is named.",
        "scales for groups of 128 where 32 is planned",
    ),
    "K025": Code(
        "packed where the plan says dense, or the other way",
        "The quant spec says for each role how the checkpoint stores it.",
        "A quant spec of another release.",
        "Name the quant spec of this checkpoint.",
        "bf16 experts with int4-g32-experts",
    ),
    "K026": Code(
        "a packing that is not read",
        "INT4 is symmetric, in order, without zero points.",
        "Weights quantised in another way.",
        "Use a release packed as compressed-tensors pack-quantized, symmetric.",
        "a weight_zero_point beside a packed tensor",
    ),
    "K027": Code(
        "the shape beside a packed tensor contradicts it",
        "`<tensor>_shape` holds the logical shape of `<tensor>_packed`.",
        "Damage, or a hand-made checkpoint.",
        "Fetch the checkpoint again.",
        "_shape of [2048, 7168] beside words for 7160 columns",
    ),
    "K028": Code(
        "a weight file changed or vanished while it was read",
        "Nobody writes the checkpoint while it is loaded.",
        "A download that still runs.",
        "Wait until it is done, then run again.",
        "a file that grows",
    ),
    "K040": Code(
        "tokenizer.json cannot be used",
        "tokenizer.json beside the weights is one of the tokenizers library.",
        "A partial download, or a pointer file.",
        "Fetch it again, or give the prompt as --prompt-ids.",
        "an empty tokenizer.json",
    ),
}
