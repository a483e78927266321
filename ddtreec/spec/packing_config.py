"""How a checkpoint packs its experts: read from the tensor names, cross-checked with `quantization_config`."""

from __future__ import annotations

from ddtreec.spec.hf import Config, some


def int4_group(config: Config, text: Config, names: frozenset[str]) -> int | None:
    """The INT4 group size of the routed experts, None where all is dense; names decide, the config must agree."""
    quant = text.inside("quantization_config") or config.inside("quantization_config")
    packed = {n for n in names if n.endswith(".weight_packed")}
    group = _scheme_group(quant) if quant is not None else None
    other = sorted(n for n in packed if ".mlp.experts." not in n)
    if other:
        message = f"INT4 is supported in routed experts only, not in {some(other)}"
        config.report("S050", message, help="save the other weights as bf16")
    if packed and quant is None:
        message = f"{len(packed)} tensors are packed, but no quantization_config says how"
        config.report("S052", message, help="add the quantization_config of the release")
    dense = sorted(n for n in names if ".mlp.experts." in n and n.endswith("_proj.weight"))
    if quant is not None and names and dense:
        what = "some experts are packed, others not" if packed else "no expert is packed"
        quant.refuse("quant_method", f"the config says INT4, but {what}: {some(dense)}", code="S052")
    return group


def _scheme_group(quant: Config) -> int | None:
    """The group size of a compressed-tensors pack-quantized INT4 scheme; a problem for everything else."""
    method = quant.word("quant_method", "")
    if method != "compressed-tensors":
        hint = "supported: bf16, and compressed-tensors pack-quantized INT4; save the model as one of them"
        quant.refuse("quant_method", f"quantization `{method}` is not supported", hint)
        return None
    form = quant.word("format", "pack-quantized")
    if form != "pack-quantized":
        quant.refuse("format", f"the format `{form}` is not supported", "only pack-quantized is")
    if quant.data.get("kv_cache_scheme") is not None:
        quant.refuse("kv_cache_scheme", "a quantized KV cache is not supported")
    groups = quant.inside("config_groups")
    schemes = [s for key in (groups.data if groups else {}) if groups and (s := groups.inside(key)) is not None]
    if len(schemes) != 1:
        quant.refuse("config_groups", f"{len(schemes)} quantization groups are not supported, only one is")
        return None
    if schemes[0].data.get("input_activations") is not None:
        schemes[0].refuse("input_activations", "quantized activations are not supported")
    weights = schemes[0].inside("weights")
    if weights is None:
        schemes[0].refuse("weights", "the quantization group does not describe its weights", code="S051")
        return None
    wanted = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group"}
    for key, value in wanted.items():
        found = weights.data.get(key, value if key != "num_bits" else None)
        if found != value:
            weights.refuse(key, f"weights with `{key}` {found!r} are not supported", f"only {value!r} is")
    if weights.data.get("actorder"):
        weights.refuse("actorder", "activation ordering (`actorder`) is not supported")
    return weights.whole("group_size")
