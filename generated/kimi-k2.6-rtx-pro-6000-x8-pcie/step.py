# step program: engine kimi-k2.6-rtx-pro-6000-x8-pcie, bfloat16; template step/step.py.j2
"""kimi-k2.6 on rtx-pro-6000-x8-pcie: 8 ranks (experts: ep 1 x tp 8).

`k`: kernels of the backend, `w`: weights of one rank, `b`: buffers of one rank for the rows of this step, `state`:
positions, caches and tree of this step. A collective is yielded as (name, outs, ins, params); all ranks meet there.
"""


def target(k, w, b, state):
    """560 calls, up to 128 rows."""
    # embed.tokens
    k.embedding__t20480(state, b.embed_x_part, b.tokens, w.embed_tokens, first=state.first("rank", 20480))
    # embed.tokens.all_reduce
    yield ("all_reduce", (b.embed_x,), (b.embed_x_part,), {})
    # L00.attention.norm_linear
    k.norm_linear__w2112x7168(state, b.L00_attention_q_a_kv_a, b.embed_x, w.L00_attention_norm,
        w.L00_attention_q_a_kv_a)
    # L00.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L00_attention_q_rot, b.L00_attention_o_q_c, b.L00_attention_qa,
        w.L00_attention_q_norm, w.L00_attention_q_b, w.L00_attention_mla_w_uk)
    # L00.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L00_attention_latent, b.L00_attention_k_pe, w.L00_attention_kv_norm, layer=0)
    # L00.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L00_attention_o, b.L00_attention_o_q_c, b.L00_attention_q_rot,
        w.L00_attention_mla_w_uv, layer=0)
    # L00.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L00_attention_attn_part, b.L00_attention_o, w.L00_attention_o_proj)
    # L00.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L00_attention_attn,), (b.L00_attention_attn_part,), {})
    # L00.mlp.add_norm_linear
    k.add_norm_linear__w4608x7168_m128(state, b.L00_attention_y, b.L00_mlp_gate_up, b.embed_x, b.L00_attention_attn,
        w.L00_mlp_norm, w.L00_mlp_gate_up)
    # L00.mlp.swiglu_linear
    k.swiglu_linear__w7168x2304_m128(state, b.L00_mlp_m_part, b.L00_mlp_g, b.L00_mlp_u, w.L00_mlp_down)
    # L00.mlp.down.all_reduce
    yield ("all_reduce", (b.L00_mlp_m,), (b.L00_mlp_m_part,), {})
    # L01.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L00_mlp_y, b.L01_attention_q_a_kv_a, b.L00_attention_y, b.L00_mlp_m,
        w.L01_attention_norm, w.L01_attention_q_a_kv_a)
    # L01.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L01_attention_q_rot, b.L01_attention_o_q_c, b.L01_attention_qa,
        w.L01_attention_q_norm, w.L01_attention_q_b, w.L01_attention_mla_w_uk)
    # L01.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L01_attention_latent, b.L01_attention_k_pe, w.L01_attention_kv_norm, layer=1)
    # L01.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L01_attention_o, b.L01_attention_o_q_c, b.L01_attention_q_rot,
        w.L01_attention_mla_w_uv, layer=1)
    # L01.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L01_attention_attn_part, b.L01_attention_o, w.L01_attention_o_proj)
    # L01.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L01_attention_attn,), (b.L01_attention_attn_part,), {})
    # L01.moe.add_norm_router
    k.add_norm_router__n384(state, b.L01_attention_y, b.L01_moe_h, b.L01_moe_ids, b.L01_moe_w, b.L00_mlp_y,
        b.L01_attention_attn, w.L01_moe_norm, w.L01_moe_router, w.L01_moe_router_bias)
    # L01.moe.experts_shared
    k.experts_shared__e384(state, b.L01_moe_m_part, b.L01_moe_h, b.L01_moe_ids, b.L01_moe_w, w.L01_moe_experts_gate_up,
        w.L01_moe_experts_down, w.L01_moe_shared_gate_shared_up, w.L01_moe_shared_down, first=0)
    # L01.moe.sum.all_reduce
    yield ("all_reduce", (b.L01_moe_m,), (b.L01_moe_m_part,), {})
    # L02.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L01_moe_y, b.L02_attention_q_a_kv_a, b.L01_attention_y, b.L01_moe_m,
        w.L02_attention_norm, w.L02_attention_q_a_kv_a)
    # L01.tap
    k.tap__n7168(state, b.features, b.L01_moe_y, index=0)
    # L02.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L02_attention_q_rot, b.L02_attention_o_q_c, b.L02_attention_qa,
        w.L02_attention_q_norm, w.L02_attention_q_b, w.L02_attention_mla_w_uk)
    # L02.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L02_attention_latent, b.L02_attention_k_pe, w.L02_attention_kv_norm, layer=2)
    # L02.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L02_attention_o, b.L02_attention_o_q_c, b.L02_attention_q_rot,
        w.L02_attention_mla_w_uv, layer=2)
    # L02.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L02_attention_attn_part, b.L02_attention_o, w.L02_attention_o_proj)
    # L02.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L02_attention_attn,), (b.L02_attention_attn_part,), {})
    # L02.moe.add_norm_router
    k.add_norm_router__n384(state, b.L02_attention_y, b.L02_moe_h, b.L02_moe_ids, b.L02_moe_w, b.L01_moe_y,
        b.L02_attention_attn, w.L02_moe_norm, w.L02_moe_router, w.L02_moe_router_bias)
    # L02.moe.experts_shared
    k.experts_shared__e384(state, b.L02_moe_m_part, b.L02_moe_h, b.L02_moe_ids, b.L02_moe_w, w.L02_moe_experts_gate_up,
        w.L02_moe_experts_down, w.L02_moe_shared_gate_shared_up, w.L02_moe_shared_down, first=0)
    # L02.moe.sum.all_reduce
    yield ("all_reduce", (b.L02_moe_m,), (b.L02_moe_m_part,), {})
    # L03.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L02_moe_y, b.L03_attention_q_a_kv_a, b.L02_attention_y, b.L02_moe_m,
        w.L03_attention_norm, w.L03_attention_q_a_kv_a)
    # L03.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L03_attention_q_rot, b.L03_attention_o_q_c, b.L03_attention_qa,
        w.L03_attention_q_norm, w.L03_attention_q_b, w.L03_attention_mla_w_uk)
    # L03.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L03_attention_latent, b.L03_attention_k_pe, w.L03_attention_kv_norm, layer=3)
    # L03.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L03_attention_o, b.L03_attention_o_q_c, b.L03_attention_q_rot,
        w.L03_attention_mla_w_uv, layer=3)
    # L03.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L03_attention_attn_part, b.L03_attention_o, w.L03_attention_o_proj)
    # L03.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L03_attention_attn,), (b.L03_attention_attn_part,), {})
    # L03.moe.add_norm_router
    k.add_norm_router__n384(state, b.L03_attention_y, b.L03_moe_h, b.L03_moe_ids, b.L03_moe_w, b.L02_moe_y,
        b.L03_attention_attn, w.L03_moe_norm, w.L03_moe_router, w.L03_moe_router_bias)
    # L03.moe.experts_shared
    k.experts_shared__e384(state, b.L03_moe_m_part, b.L03_moe_h, b.L03_moe_ids, b.L03_moe_w, w.L03_moe_experts_gate_up,
        w.L03_moe_experts_down, w.L03_moe_shared_gate_shared_up, w.L03_moe_shared_down, first=0)
    # L03.moe.sum.all_reduce
    yield ("all_reduce", (b.L03_moe_m,), (b.L03_moe_m_part,), {})
    # L04.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L03_moe_y, b.L04_attention_q_a_kv_a, b.L03_attention_y, b.L03_moe_m,
        w.L04_attention_norm, w.L04_attention_q_a_kv_a)
    # L04.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L04_attention_q_rot, b.L04_attention_o_q_c, b.L04_attention_qa,
        w.L04_attention_q_norm, w.L04_attention_q_b, w.L04_attention_mla_w_uk)
    # L04.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L04_attention_latent, b.L04_attention_k_pe, w.L04_attention_kv_norm, layer=4)
    # L04.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L04_attention_o, b.L04_attention_o_q_c, b.L04_attention_q_rot,
        w.L04_attention_mla_w_uv, layer=4)
    # L04.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L04_attention_attn_part, b.L04_attention_o, w.L04_attention_o_proj)
    # L04.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L04_attention_attn,), (b.L04_attention_attn_part,), {})
    # L04.moe.add_norm_router
    k.add_norm_router__n384(state, b.L04_attention_y, b.L04_moe_h, b.L04_moe_ids, b.L04_moe_w, b.L03_moe_y,
        b.L04_attention_attn, w.L04_moe_norm, w.L04_moe_router, w.L04_moe_router_bias)
    # L04.moe.experts_shared
    k.experts_shared__e384(state, b.L04_moe_m_part, b.L04_moe_h, b.L04_moe_ids, b.L04_moe_w, w.L04_moe_experts_gate_up,
        w.L04_moe_experts_down, w.L04_moe_shared_gate_shared_up, w.L04_moe_shared_down, first=0)
    # L04.moe.sum.all_reduce
    yield ("all_reduce", (b.L04_moe_m,), (b.L04_moe_m_part,), {})
    # L05.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L04_moe_y, b.L05_attention_q_a_kv_a, b.L04_attention_y, b.L04_moe_m,
        w.L05_attention_norm, w.L05_attention_q_a_kv_a)
    # L05.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L05_attention_q_rot, b.L05_attention_o_q_c, b.L05_attention_qa,
        w.L05_attention_q_norm, w.L05_attention_q_b, w.L05_attention_mla_w_uk)
    # L05.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L05_attention_latent, b.L05_attention_k_pe, w.L05_attention_kv_norm, layer=5)
    # L05.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L05_attention_o, b.L05_attention_o_q_c, b.L05_attention_q_rot,
        w.L05_attention_mla_w_uv, layer=5)
    # L05.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L05_attention_attn_part, b.L05_attention_o, w.L05_attention_o_proj)
    # L05.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L05_attention_attn,), (b.L05_attention_attn_part,), {})
    # L05.moe.add_norm_router
    k.add_norm_router__n384(state, b.L05_attention_y, b.L05_moe_h, b.L05_moe_ids, b.L05_moe_w, b.L04_moe_y,
        b.L05_attention_attn, w.L05_moe_norm, w.L05_moe_router, w.L05_moe_router_bias)
    # L05.moe.experts_shared
    k.experts_shared__e384(state, b.L05_moe_m_part, b.L05_moe_h, b.L05_moe_ids, b.L05_moe_w, w.L05_moe_experts_gate_up,
        w.L05_moe_experts_down, w.L05_moe_shared_gate_shared_up, w.L05_moe_shared_down, first=0)
    # L05.moe.sum.all_reduce
    yield ("all_reduce", (b.L05_moe_m,), (b.L05_moe_m_part,), {})
    # L06.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L05_moe_y, b.L06_attention_q_a_kv_a, b.L05_attention_y, b.L05_moe_m,
        w.L06_attention_norm, w.L06_attention_q_a_kv_a)
    # L06.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L06_attention_q_rot, b.L06_attention_o_q_c, b.L06_attention_qa,
        w.L06_attention_q_norm, w.L06_attention_q_b, w.L06_attention_mla_w_uk)
    # L06.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L06_attention_latent, b.L06_attention_k_pe, w.L06_attention_kv_norm, layer=6)
    # L06.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L06_attention_o, b.L06_attention_o_q_c, b.L06_attention_q_rot,
        w.L06_attention_mla_w_uv, layer=6)
    # L06.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L06_attention_attn_part, b.L06_attention_o, w.L06_attention_o_proj)
    # L06.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L06_attention_attn,), (b.L06_attention_attn_part,), {})
    # L06.moe.add_norm_router
    k.add_norm_router__n384(state, b.L06_attention_y, b.L06_moe_h, b.L06_moe_ids, b.L06_moe_w, b.L05_moe_y,
        b.L06_attention_attn, w.L06_moe_norm, w.L06_moe_router, w.L06_moe_router_bias)
    # L06.moe.experts_shared
    k.experts_shared__e384(state, b.L06_moe_m_part, b.L06_moe_h, b.L06_moe_ids, b.L06_moe_w, w.L06_moe_experts_gate_up,
        w.L06_moe_experts_down, w.L06_moe_shared_gate_shared_up, w.L06_moe_shared_down, first=0)
    # L06.moe.sum.all_reduce
    yield ("all_reduce", (b.L06_moe_m,), (b.L06_moe_m_part,), {})
    # L07.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L06_moe_y, b.L07_attention_q_a_kv_a, b.L06_attention_y, b.L06_moe_m,
        w.L07_attention_norm, w.L07_attention_q_a_kv_a)
    # L07.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L07_attention_q_rot, b.L07_attention_o_q_c, b.L07_attention_qa,
        w.L07_attention_q_norm, w.L07_attention_q_b, w.L07_attention_mla_w_uk)
    # L07.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L07_attention_latent, b.L07_attention_k_pe, w.L07_attention_kv_norm, layer=7)
    # L07.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L07_attention_o, b.L07_attention_o_q_c, b.L07_attention_q_rot,
        w.L07_attention_mla_w_uv, layer=7)
    # L07.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L07_attention_attn_part, b.L07_attention_o, w.L07_attention_o_proj)
    # L07.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L07_attention_attn,), (b.L07_attention_attn_part,), {})
    # L07.moe.add_norm_router
    k.add_norm_router__n384(state, b.L07_attention_y, b.L07_moe_h, b.L07_moe_ids, b.L07_moe_w, b.L06_moe_y,
        b.L07_attention_attn, w.L07_moe_norm, w.L07_moe_router, w.L07_moe_router_bias)
    # L07.moe.experts_shared
    k.experts_shared__e384(state, b.L07_moe_m_part, b.L07_moe_h, b.L07_moe_ids, b.L07_moe_w, w.L07_moe_experts_gate_up,
        w.L07_moe_experts_down, w.L07_moe_shared_gate_shared_up, w.L07_moe_shared_down, first=0)
    # L07.moe.sum.all_reduce
    yield ("all_reduce", (b.L07_moe_m,), (b.L07_moe_m_part,), {})
    # L08.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L07_moe_y, b.L08_attention_q_a_kv_a, b.L07_attention_y, b.L07_moe_m,
        w.L08_attention_norm, w.L08_attention_q_a_kv_a)
    # L08.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L08_attention_q_rot, b.L08_attention_o_q_c, b.L08_attention_qa,
        w.L08_attention_q_norm, w.L08_attention_q_b, w.L08_attention_mla_w_uk)
    # L08.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L08_attention_latent, b.L08_attention_k_pe, w.L08_attention_kv_norm, layer=8)
    # L08.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L08_attention_o, b.L08_attention_o_q_c, b.L08_attention_q_rot,
        w.L08_attention_mla_w_uv, layer=8)
    # L08.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L08_attention_attn_part, b.L08_attention_o, w.L08_attention_o_proj)
    # L08.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L08_attention_attn,), (b.L08_attention_attn_part,), {})
    # L08.moe.add_norm_router
    k.add_norm_router__n384(state, b.L08_attention_y, b.L08_moe_h, b.L08_moe_ids, b.L08_moe_w, b.L07_moe_y,
        b.L08_attention_attn, w.L08_moe_norm, w.L08_moe_router, w.L08_moe_router_bias)
    # L08.moe.experts_shared
    k.experts_shared__e384(state, b.L08_moe_m_part, b.L08_moe_h, b.L08_moe_ids, b.L08_moe_w, w.L08_moe_experts_gate_up,
        w.L08_moe_experts_down, w.L08_moe_shared_gate_shared_up, w.L08_moe_shared_down, first=0)
    # L08.moe.sum.all_reduce
    yield ("all_reduce", (b.L08_moe_m,), (b.L08_moe_m_part,), {})
    # L09.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L08_moe_y, b.L09_attention_q_a_kv_a, b.L08_attention_y, b.L08_moe_m,
        w.L09_attention_norm, w.L09_attention_q_a_kv_a)
    # L09.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L09_attention_q_rot, b.L09_attention_o_q_c, b.L09_attention_qa,
        w.L09_attention_q_norm, w.L09_attention_q_b, w.L09_attention_mla_w_uk)
    # L09.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L09_attention_latent, b.L09_attention_k_pe, w.L09_attention_kv_norm, layer=9)
    # L09.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L09_attention_o, b.L09_attention_o_q_c, b.L09_attention_q_rot,
        w.L09_attention_mla_w_uv, layer=9)
    # L09.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L09_attention_attn_part, b.L09_attention_o, w.L09_attention_o_proj)
    # L09.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L09_attention_attn,), (b.L09_attention_attn_part,), {})
    # L09.moe.add_norm_router
    k.add_norm_router__n384(state, b.L09_attention_y, b.L09_moe_h, b.L09_moe_ids, b.L09_moe_w, b.L08_moe_y,
        b.L09_attention_attn, w.L09_moe_norm, w.L09_moe_router, w.L09_moe_router_bias)
    # L09.moe.experts_shared
    k.experts_shared__e384(state, b.L09_moe_m_part, b.L09_moe_h, b.L09_moe_ids, b.L09_moe_w, w.L09_moe_experts_gate_up,
        w.L09_moe_experts_down, w.L09_moe_shared_gate_shared_up, w.L09_moe_shared_down, first=0)
    # L09.moe.sum.all_reduce
    yield ("all_reduce", (b.L09_moe_m,), (b.L09_moe_m_part,), {})
    # L10.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L09_moe_y, b.L10_attention_q_a_kv_a, b.L09_attention_y, b.L09_moe_m,
        w.L10_attention_norm, w.L10_attention_q_a_kv_a)
    # L10.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L10_attention_q_rot, b.L10_attention_o_q_c, b.L10_attention_qa,
        w.L10_attention_q_norm, w.L10_attention_q_b, w.L10_attention_mla_w_uk)
    # L10.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L10_attention_latent, b.L10_attention_k_pe, w.L10_attention_kv_norm, layer=10)
    # L10.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L10_attention_o, b.L10_attention_o_q_c, b.L10_attention_q_rot,
        w.L10_attention_mla_w_uv, layer=10)
    # L10.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L10_attention_attn_part, b.L10_attention_o, w.L10_attention_o_proj)
    # L10.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L10_attention_attn,), (b.L10_attention_attn_part,), {})
    # L10.moe.add_norm_router
    k.add_norm_router__n384(state, b.L10_attention_y, b.L10_moe_h, b.L10_moe_ids, b.L10_moe_w, b.L09_moe_y,
        b.L10_attention_attn, w.L10_moe_norm, w.L10_moe_router, w.L10_moe_router_bias)
    # L10.moe.experts_shared
    k.experts_shared__e384(state, b.L10_moe_m_part, b.L10_moe_h, b.L10_moe_ids, b.L10_moe_w, w.L10_moe_experts_gate_up,
        w.L10_moe_experts_down, w.L10_moe_shared_gate_shared_up, w.L10_moe_shared_down, first=0)
    # L10.moe.sum.all_reduce
    yield ("all_reduce", (b.L10_moe_m,), (b.L10_moe_m_part,), {})
    # L11.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L10_moe_y, b.L11_attention_q_a_kv_a, b.L10_attention_y, b.L10_moe_m,
        w.L11_attention_norm, w.L11_attention_q_a_kv_a)
    # L11.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L11_attention_q_rot, b.L11_attention_o_q_c, b.L11_attention_qa,
        w.L11_attention_q_norm, w.L11_attention_q_b, w.L11_attention_mla_w_uk)
    # L11.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L11_attention_latent, b.L11_attention_k_pe, w.L11_attention_kv_norm, layer=11)
    # L11.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L11_attention_o, b.L11_attention_o_q_c, b.L11_attention_q_rot,
        w.L11_attention_mla_w_uv, layer=11)
    # L11.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L11_attention_attn_part, b.L11_attention_o, w.L11_attention_o_proj)
    # L11.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L11_attention_attn,), (b.L11_attention_attn_part,), {})
    # L11.moe.add_norm_router
    k.add_norm_router__n384(state, b.L11_attention_y, b.L11_moe_h, b.L11_moe_ids, b.L11_moe_w, b.L10_moe_y,
        b.L11_attention_attn, w.L11_moe_norm, w.L11_moe_router, w.L11_moe_router_bias)
    # L11.moe.experts_shared
    k.experts_shared__e384(state, b.L11_moe_m_part, b.L11_moe_h, b.L11_moe_ids, b.L11_moe_w, w.L11_moe_experts_gate_up,
        w.L11_moe_experts_down, w.L11_moe_shared_gate_shared_up, w.L11_moe_shared_down, first=0)
    # L11.moe.sum.all_reduce
    yield ("all_reduce", (b.L11_moe_m,), (b.L11_moe_m_part,), {})
    # L12.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L11_moe_y, b.L12_attention_q_a_kv_a, b.L11_attention_y, b.L11_moe_m,
        w.L12_attention_norm, w.L12_attention_q_a_kv_a)
    # L12.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L12_attention_q_rot, b.L12_attention_o_q_c, b.L12_attention_qa,
        w.L12_attention_q_norm, w.L12_attention_q_b, w.L12_attention_mla_w_uk)
    # L12.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L12_attention_latent, b.L12_attention_k_pe, w.L12_attention_kv_norm, layer=12)
    # L12.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L12_attention_o, b.L12_attention_o_q_c, b.L12_attention_q_rot,
        w.L12_attention_mla_w_uv, layer=12)
    # L12.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L12_attention_attn_part, b.L12_attention_o, w.L12_attention_o_proj)
    # L12.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L12_attention_attn,), (b.L12_attention_attn_part,), {})
    # L12.moe.add_norm_router
    k.add_norm_router__n384(state, b.L12_attention_y, b.L12_moe_h, b.L12_moe_ids, b.L12_moe_w, b.L11_moe_y,
        b.L12_attention_attn, w.L12_moe_norm, w.L12_moe_router, w.L12_moe_router_bias)
    # L12.moe.experts_shared
    k.experts_shared__e384(state, b.L12_moe_m_part, b.L12_moe_h, b.L12_moe_ids, b.L12_moe_w, w.L12_moe_experts_gate_up,
        w.L12_moe_experts_down, w.L12_moe_shared_gate_shared_up, w.L12_moe_shared_down, first=0)
    # L12.moe.sum.all_reduce
    yield ("all_reduce", (b.L12_moe_m,), (b.L12_moe_m_part,), {})
    # L13.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L12_moe_y, b.L13_attention_q_a_kv_a, b.L12_attention_y, b.L12_moe_m,
        w.L13_attention_norm, w.L13_attention_q_a_kv_a)
    # L12.tap
    k.tap__n7168(state, b.features, b.L12_moe_y, index=1)
    # L13.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L13_attention_q_rot, b.L13_attention_o_q_c, b.L13_attention_qa,
        w.L13_attention_q_norm, w.L13_attention_q_b, w.L13_attention_mla_w_uk)
    # L13.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L13_attention_latent, b.L13_attention_k_pe, w.L13_attention_kv_norm, layer=13)
    # L13.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L13_attention_o, b.L13_attention_o_q_c, b.L13_attention_q_rot,
        w.L13_attention_mla_w_uv, layer=13)
    # L13.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L13_attention_attn_part, b.L13_attention_o, w.L13_attention_o_proj)
    # L13.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L13_attention_attn,), (b.L13_attention_attn_part,), {})
    # L13.moe.add_norm_router
    k.add_norm_router__n384(state, b.L13_attention_y, b.L13_moe_h, b.L13_moe_ids, b.L13_moe_w, b.L12_moe_y,
        b.L13_attention_attn, w.L13_moe_norm, w.L13_moe_router, w.L13_moe_router_bias)
    # L13.moe.experts_shared
    k.experts_shared__e384(state, b.L13_moe_m_part, b.L13_moe_h, b.L13_moe_ids, b.L13_moe_w, w.L13_moe_experts_gate_up,
        w.L13_moe_experts_down, w.L13_moe_shared_gate_shared_up, w.L13_moe_shared_down, first=0)
    # L13.moe.sum.all_reduce
    yield ("all_reduce", (b.L13_moe_m,), (b.L13_moe_m_part,), {})
    # L14.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L13_moe_y, b.L14_attention_q_a_kv_a, b.L13_attention_y, b.L13_moe_m,
        w.L14_attention_norm, w.L14_attention_q_a_kv_a)
    # L14.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L14_attention_q_rot, b.L14_attention_o_q_c, b.L14_attention_qa,
        w.L14_attention_q_norm, w.L14_attention_q_b, w.L14_attention_mla_w_uk)
    # L14.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L14_attention_latent, b.L14_attention_k_pe, w.L14_attention_kv_norm, layer=14)
    # L14.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L14_attention_o, b.L14_attention_o_q_c, b.L14_attention_q_rot,
        w.L14_attention_mla_w_uv, layer=14)
    # L14.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L14_attention_attn_part, b.L14_attention_o, w.L14_attention_o_proj)
    # L14.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L14_attention_attn,), (b.L14_attention_attn_part,), {})
    # L14.moe.add_norm_router
    k.add_norm_router__n384(state, b.L14_attention_y, b.L14_moe_h, b.L14_moe_ids, b.L14_moe_w, b.L13_moe_y,
        b.L14_attention_attn, w.L14_moe_norm, w.L14_moe_router, w.L14_moe_router_bias)
    # L14.moe.experts_shared
    k.experts_shared__e384(state, b.L14_moe_m_part, b.L14_moe_h, b.L14_moe_ids, b.L14_moe_w, w.L14_moe_experts_gate_up,
        w.L14_moe_experts_down, w.L14_moe_shared_gate_shared_up, w.L14_moe_shared_down, first=0)
    # L14.moe.sum.all_reduce
    yield ("all_reduce", (b.L14_moe_m,), (b.L14_moe_m_part,), {})
    # L15.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L14_moe_y, b.L15_attention_q_a_kv_a, b.L14_attention_y, b.L14_moe_m,
        w.L15_attention_norm, w.L15_attention_q_a_kv_a)
    # L15.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L15_attention_q_rot, b.L15_attention_o_q_c, b.L15_attention_qa,
        w.L15_attention_q_norm, w.L15_attention_q_b, w.L15_attention_mla_w_uk)
    # L15.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L15_attention_latent, b.L15_attention_k_pe, w.L15_attention_kv_norm, layer=15)
    # L15.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L15_attention_o, b.L15_attention_o_q_c, b.L15_attention_q_rot,
        w.L15_attention_mla_w_uv, layer=15)
    # L15.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L15_attention_attn_part, b.L15_attention_o, w.L15_attention_o_proj)
    # L15.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L15_attention_attn,), (b.L15_attention_attn_part,), {})
    # L15.moe.add_norm_router
    k.add_norm_router__n384(state, b.L15_attention_y, b.L15_moe_h, b.L15_moe_ids, b.L15_moe_w, b.L14_moe_y,
        b.L15_attention_attn, w.L15_moe_norm, w.L15_moe_router, w.L15_moe_router_bias)
    # L15.moe.experts_shared
    k.experts_shared__e384(state, b.L15_moe_m_part, b.L15_moe_h, b.L15_moe_ids, b.L15_moe_w, w.L15_moe_experts_gate_up,
        w.L15_moe_experts_down, w.L15_moe_shared_gate_shared_up, w.L15_moe_shared_down, first=0)
    # L15.moe.sum.all_reduce
    yield ("all_reduce", (b.L15_moe_m,), (b.L15_moe_m_part,), {})
    # L16.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L15_moe_y, b.L16_attention_q_a_kv_a, b.L15_attention_y, b.L15_moe_m,
        w.L16_attention_norm, w.L16_attention_q_a_kv_a)
    # L16.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L16_attention_q_rot, b.L16_attention_o_q_c, b.L16_attention_qa,
        w.L16_attention_q_norm, w.L16_attention_q_b, w.L16_attention_mla_w_uk)
    # L16.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L16_attention_latent, b.L16_attention_k_pe, w.L16_attention_kv_norm, layer=16)
    # L16.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L16_attention_o, b.L16_attention_o_q_c, b.L16_attention_q_rot,
        w.L16_attention_mla_w_uv, layer=16)
    # L16.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L16_attention_attn_part, b.L16_attention_o, w.L16_attention_o_proj)
    # L16.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L16_attention_attn,), (b.L16_attention_attn_part,), {})
    # L16.moe.add_norm_router
    k.add_norm_router__n384(state, b.L16_attention_y, b.L16_moe_h, b.L16_moe_ids, b.L16_moe_w, b.L15_moe_y,
        b.L16_attention_attn, w.L16_moe_norm, w.L16_moe_router, w.L16_moe_router_bias)
    # L16.moe.experts_shared
    k.experts_shared__e384(state, b.L16_moe_m_part, b.L16_moe_h, b.L16_moe_ids, b.L16_moe_w, w.L16_moe_experts_gate_up,
        w.L16_moe_experts_down, w.L16_moe_shared_gate_shared_up, w.L16_moe_shared_down, first=0)
    # L16.moe.sum.all_reduce
    yield ("all_reduce", (b.L16_moe_m,), (b.L16_moe_m_part,), {})
    # L17.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L16_moe_y, b.L17_attention_q_a_kv_a, b.L16_attention_y, b.L16_moe_m,
        w.L17_attention_norm, w.L17_attention_q_a_kv_a)
    # L17.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L17_attention_q_rot, b.L17_attention_o_q_c, b.L17_attention_qa,
        w.L17_attention_q_norm, w.L17_attention_q_b, w.L17_attention_mla_w_uk)
    # L17.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L17_attention_latent, b.L17_attention_k_pe, w.L17_attention_kv_norm, layer=17)
    # L17.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L17_attention_o, b.L17_attention_o_q_c, b.L17_attention_q_rot,
        w.L17_attention_mla_w_uv, layer=17)
    # L17.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L17_attention_attn_part, b.L17_attention_o, w.L17_attention_o_proj)
    # L17.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L17_attention_attn,), (b.L17_attention_attn_part,), {})
    # L17.moe.add_norm_router
    k.add_norm_router__n384(state, b.L17_attention_y, b.L17_moe_h, b.L17_moe_ids, b.L17_moe_w, b.L16_moe_y,
        b.L17_attention_attn, w.L17_moe_norm, w.L17_moe_router, w.L17_moe_router_bias)
    # L17.moe.experts_shared
    k.experts_shared__e384(state, b.L17_moe_m_part, b.L17_moe_h, b.L17_moe_ids, b.L17_moe_w, w.L17_moe_experts_gate_up,
        w.L17_moe_experts_down, w.L17_moe_shared_gate_shared_up, w.L17_moe_shared_down, first=0)
    # L17.moe.sum.all_reduce
    yield ("all_reduce", (b.L17_moe_m,), (b.L17_moe_m_part,), {})
    # L18.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L17_moe_y, b.L18_attention_q_a_kv_a, b.L17_attention_y, b.L17_moe_m,
        w.L18_attention_norm, w.L18_attention_q_a_kv_a)
    # L18.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L18_attention_q_rot, b.L18_attention_o_q_c, b.L18_attention_qa,
        w.L18_attention_q_norm, w.L18_attention_q_b, w.L18_attention_mla_w_uk)
    # L18.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L18_attention_latent, b.L18_attention_k_pe, w.L18_attention_kv_norm, layer=18)
    # L18.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L18_attention_o, b.L18_attention_o_q_c, b.L18_attention_q_rot,
        w.L18_attention_mla_w_uv, layer=18)
    # L18.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L18_attention_attn_part, b.L18_attention_o, w.L18_attention_o_proj)
    # L18.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L18_attention_attn,), (b.L18_attention_attn_part,), {})
    # L18.moe.add_norm_router
    k.add_norm_router__n384(state, b.L18_attention_y, b.L18_moe_h, b.L18_moe_ids, b.L18_moe_w, b.L17_moe_y,
        b.L18_attention_attn, w.L18_moe_norm, w.L18_moe_router, w.L18_moe_router_bias)
    # L18.moe.experts_shared
    k.experts_shared__e384(state, b.L18_moe_m_part, b.L18_moe_h, b.L18_moe_ids, b.L18_moe_w, w.L18_moe_experts_gate_up,
        w.L18_moe_experts_down, w.L18_moe_shared_gate_shared_up, w.L18_moe_shared_down, first=0)
    # L18.moe.sum.all_reduce
    yield ("all_reduce", (b.L18_moe_m,), (b.L18_moe_m_part,), {})
    # L19.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L18_moe_y, b.L19_attention_q_a_kv_a, b.L18_attention_y, b.L18_moe_m,
        w.L19_attention_norm, w.L19_attention_q_a_kv_a)
    # L19.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L19_attention_q_rot, b.L19_attention_o_q_c, b.L19_attention_qa,
        w.L19_attention_q_norm, w.L19_attention_q_b, w.L19_attention_mla_w_uk)
    # L19.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L19_attention_latent, b.L19_attention_k_pe, w.L19_attention_kv_norm, layer=19)
    # L19.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L19_attention_o, b.L19_attention_o_q_c, b.L19_attention_q_rot,
        w.L19_attention_mla_w_uv, layer=19)
    # L19.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L19_attention_attn_part, b.L19_attention_o, w.L19_attention_o_proj)
    # L19.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L19_attention_attn,), (b.L19_attention_attn_part,), {})
    # L19.moe.add_norm_router
    k.add_norm_router__n384(state, b.L19_attention_y, b.L19_moe_h, b.L19_moe_ids, b.L19_moe_w, b.L18_moe_y,
        b.L19_attention_attn, w.L19_moe_norm, w.L19_moe_router, w.L19_moe_router_bias)
    # L19.moe.experts_shared
    k.experts_shared__e384(state, b.L19_moe_m_part, b.L19_moe_h, b.L19_moe_ids, b.L19_moe_w, w.L19_moe_experts_gate_up,
        w.L19_moe_experts_down, w.L19_moe_shared_gate_shared_up, w.L19_moe_shared_down, first=0)
    # L19.moe.sum.all_reduce
    yield ("all_reduce", (b.L19_moe_m,), (b.L19_moe_m_part,), {})
    # L20.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L19_moe_y, b.L20_attention_q_a_kv_a, b.L19_attention_y, b.L19_moe_m,
        w.L20_attention_norm, w.L20_attention_q_a_kv_a)
    # L20.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L20_attention_q_rot, b.L20_attention_o_q_c, b.L20_attention_qa,
        w.L20_attention_q_norm, w.L20_attention_q_b, w.L20_attention_mla_w_uk)
    # L20.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L20_attention_latent, b.L20_attention_k_pe, w.L20_attention_kv_norm, layer=20)
    # L20.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L20_attention_o, b.L20_attention_o_q_c, b.L20_attention_q_rot,
        w.L20_attention_mla_w_uv, layer=20)
    # L20.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L20_attention_attn_part, b.L20_attention_o, w.L20_attention_o_proj)
    # L20.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L20_attention_attn,), (b.L20_attention_attn_part,), {})
    # L20.moe.add_norm_router
    k.add_norm_router__n384(state, b.L20_attention_y, b.L20_moe_h, b.L20_moe_ids, b.L20_moe_w, b.L19_moe_y,
        b.L20_attention_attn, w.L20_moe_norm, w.L20_moe_router, w.L20_moe_router_bias)
    # L20.moe.experts_shared
    k.experts_shared__e384(state, b.L20_moe_m_part, b.L20_moe_h, b.L20_moe_ids, b.L20_moe_w, w.L20_moe_experts_gate_up,
        w.L20_moe_experts_down, w.L20_moe_shared_gate_shared_up, w.L20_moe_shared_down, first=0)
    # L20.moe.sum.all_reduce
    yield ("all_reduce", (b.L20_moe_m,), (b.L20_moe_m_part,), {})
    # L21.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L20_moe_y, b.L21_attention_q_a_kv_a, b.L20_attention_y, b.L20_moe_m,
        w.L21_attention_norm, w.L21_attention_q_a_kv_a)
    # L21.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L21_attention_q_rot, b.L21_attention_o_q_c, b.L21_attention_qa,
        w.L21_attention_q_norm, w.L21_attention_q_b, w.L21_attention_mla_w_uk)
    # L21.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L21_attention_latent, b.L21_attention_k_pe, w.L21_attention_kv_norm, layer=21)
    # L21.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L21_attention_o, b.L21_attention_o_q_c, b.L21_attention_q_rot,
        w.L21_attention_mla_w_uv, layer=21)
    # L21.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L21_attention_attn_part, b.L21_attention_o, w.L21_attention_o_proj)
    # L21.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L21_attention_attn,), (b.L21_attention_attn_part,), {})
    # L21.moe.add_norm_router
    k.add_norm_router__n384(state, b.L21_attention_y, b.L21_moe_h, b.L21_moe_ids, b.L21_moe_w, b.L20_moe_y,
        b.L21_attention_attn, w.L21_moe_norm, w.L21_moe_router, w.L21_moe_router_bias)
    # L21.moe.experts_shared
    k.experts_shared__e384(state, b.L21_moe_m_part, b.L21_moe_h, b.L21_moe_ids, b.L21_moe_w, w.L21_moe_experts_gate_up,
        w.L21_moe_experts_down, w.L21_moe_shared_gate_shared_up, w.L21_moe_shared_down, first=0)
    # L21.moe.sum.all_reduce
    yield ("all_reduce", (b.L21_moe_m,), (b.L21_moe_m_part,), {})
    # L22.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L21_moe_y, b.L22_attention_q_a_kv_a, b.L21_attention_y, b.L21_moe_m,
        w.L22_attention_norm, w.L22_attention_q_a_kv_a)
    # L22.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L22_attention_q_rot, b.L22_attention_o_q_c, b.L22_attention_qa,
        w.L22_attention_q_norm, w.L22_attention_q_b, w.L22_attention_mla_w_uk)
    # L22.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L22_attention_latent, b.L22_attention_k_pe, w.L22_attention_kv_norm, layer=22)
    # L22.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L22_attention_o, b.L22_attention_o_q_c, b.L22_attention_q_rot,
        w.L22_attention_mla_w_uv, layer=22)
    # L22.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L22_attention_attn_part, b.L22_attention_o, w.L22_attention_o_proj)
    # L22.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L22_attention_attn,), (b.L22_attention_attn_part,), {})
    # L22.moe.add_norm_router
    k.add_norm_router__n384(state, b.L22_attention_y, b.L22_moe_h, b.L22_moe_ids, b.L22_moe_w, b.L21_moe_y,
        b.L22_attention_attn, w.L22_moe_norm, w.L22_moe_router, w.L22_moe_router_bias)
    # L22.moe.experts_shared
    k.experts_shared__e384(state, b.L22_moe_m_part, b.L22_moe_h, b.L22_moe_ids, b.L22_moe_w, w.L22_moe_experts_gate_up,
        w.L22_moe_experts_down, w.L22_moe_shared_gate_shared_up, w.L22_moe_shared_down, first=0)
    # L22.moe.sum.all_reduce
    yield ("all_reduce", (b.L22_moe_m,), (b.L22_moe_m_part,), {})
    # L23.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L22_moe_y, b.L23_attention_q_a_kv_a, b.L22_attention_y, b.L22_moe_m,
        w.L23_attention_norm, w.L23_attention_q_a_kv_a)
    # L23.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L23_attention_q_rot, b.L23_attention_o_q_c, b.L23_attention_qa,
        w.L23_attention_q_norm, w.L23_attention_q_b, w.L23_attention_mla_w_uk)
    # L23.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L23_attention_latent, b.L23_attention_k_pe, w.L23_attention_kv_norm, layer=23)
    # L23.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L23_attention_o, b.L23_attention_o_q_c, b.L23_attention_q_rot,
        w.L23_attention_mla_w_uv, layer=23)
    # L23.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L23_attention_attn_part, b.L23_attention_o, w.L23_attention_o_proj)
    # L23.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L23_attention_attn,), (b.L23_attention_attn_part,), {})
    # L23.moe.add_norm_router
    k.add_norm_router__n384(state, b.L23_attention_y, b.L23_moe_h, b.L23_moe_ids, b.L23_moe_w, b.L22_moe_y,
        b.L23_attention_attn, w.L23_moe_norm, w.L23_moe_router, w.L23_moe_router_bias)
    # L23.moe.experts_shared
    k.experts_shared__e384(state, b.L23_moe_m_part, b.L23_moe_h, b.L23_moe_ids, b.L23_moe_w, w.L23_moe_experts_gate_up,
        w.L23_moe_experts_down, w.L23_moe_shared_gate_shared_up, w.L23_moe_shared_down, first=0)
    # L23.moe.sum.all_reduce
    yield ("all_reduce", (b.L23_moe_m,), (b.L23_moe_m_part,), {})
    # L24.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L23_moe_y, b.L24_attention_q_a_kv_a, b.L23_attention_y, b.L23_moe_m,
        w.L24_attention_norm, w.L24_attention_q_a_kv_a)
    # L24.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L24_attention_q_rot, b.L24_attention_o_q_c, b.L24_attention_qa,
        w.L24_attention_q_norm, w.L24_attention_q_b, w.L24_attention_mla_w_uk)
    # L24.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L24_attention_latent, b.L24_attention_k_pe, w.L24_attention_kv_norm, layer=24)
    # L24.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L24_attention_o, b.L24_attention_o_q_c, b.L24_attention_q_rot,
        w.L24_attention_mla_w_uv, layer=24)
    # L24.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L24_attention_attn_part, b.L24_attention_o, w.L24_attention_o_proj)
    # L24.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L24_attention_attn,), (b.L24_attention_attn_part,), {})
    # L24.moe.add_norm_router
    k.add_norm_router__n384(state, b.L24_attention_y, b.L24_moe_h, b.L24_moe_ids, b.L24_moe_w, b.L23_moe_y,
        b.L24_attention_attn, w.L24_moe_norm, w.L24_moe_router, w.L24_moe_router_bias)
    # L24.moe.experts_shared
    k.experts_shared__e384(state, b.L24_moe_m_part, b.L24_moe_h, b.L24_moe_ids, b.L24_moe_w, w.L24_moe_experts_gate_up,
        w.L24_moe_experts_down, w.L24_moe_shared_gate_shared_up, w.L24_moe_shared_down, first=0)
    # L24.moe.sum.all_reduce
    yield ("all_reduce", (b.L24_moe_m,), (b.L24_moe_m_part,), {})
    # L25.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L24_moe_y, b.L25_attention_q_a_kv_a, b.L24_attention_y, b.L24_moe_m,
        w.L25_attention_norm, w.L25_attention_q_a_kv_a)
    # L24.tap
    k.tap__n7168(state, b.features, b.L24_moe_y, index=2)
    # L25.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L25_attention_q_rot, b.L25_attention_o_q_c, b.L25_attention_qa,
        w.L25_attention_q_norm, w.L25_attention_q_b, w.L25_attention_mla_w_uk)
    # L25.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L25_attention_latent, b.L25_attention_k_pe, w.L25_attention_kv_norm, layer=25)
    # L25.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L25_attention_o, b.L25_attention_o_q_c, b.L25_attention_q_rot,
        w.L25_attention_mla_w_uv, layer=25)
    # L25.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L25_attention_attn_part, b.L25_attention_o, w.L25_attention_o_proj)
    # L25.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L25_attention_attn,), (b.L25_attention_attn_part,), {})
    # L25.moe.add_norm_router
    k.add_norm_router__n384(state, b.L25_attention_y, b.L25_moe_h, b.L25_moe_ids, b.L25_moe_w, b.L24_moe_y,
        b.L25_attention_attn, w.L25_moe_norm, w.L25_moe_router, w.L25_moe_router_bias)
    # L25.moe.experts_shared
    k.experts_shared__e384(state, b.L25_moe_m_part, b.L25_moe_h, b.L25_moe_ids, b.L25_moe_w, w.L25_moe_experts_gate_up,
        w.L25_moe_experts_down, w.L25_moe_shared_gate_shared_up, w.L25_moe_shared_down, first=0)
    # L25.moe.sum.all_reduce
    yield ("all_reduce", (b.L25_moe_m,), (b.L25_moe_m_part,), {})
    # L26.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L25_moe_y, b.L26_attention_q_a_kv_a, b.L25_attention_y, b.L25_moe_m,
        w.L26_attention_norm, w.L26_attention_q_a_kv_a)
    # L26.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L26_attention_q_rot, b.L26_attention_o_q_c, b.L26_attention_qa,
        w.L26_attention_q_norm, w.L26_attention_q_b, w.L26_attention_mla_w_uk)
    # L26.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L26_attention_latent, b.L26_attention_k_pe, w.L26_attention_kv_norm, layer=26)
    # L26.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L26_attention_o, b.L26_attention_o_q_c, b.L26_attention_q_rot,
        w.L26_attention_mla_w_uv, layer=26)
    # L26.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L26_attention_attn_part, b.L26_attention_o, w.L26_attention_o_proj)
    # L26.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L26_attention_attn,), (b.L26_attention_attn_part,), {})
    # L26.moe.add_norm_router
    k.add_norm_router__n384(state, b.L26_attention_y, b.L26_moe_h, b.L26_moe_ids, b.L26_moe_w, b.L25_moe_y,
        b.L26_attention_attn, w.L26_moe_norm, w.L26_moe_router, w.L26_moe_router_bias)
    # L26.moe.experts_shared
    k.experts_shared__e384(state, b.L26_moe_m_part, b.L26_moe_h, b.L26_moe_ids, b.L26_moe_w, w.L26_moe_experts_gate_up,
        w.L26_moe_experts_down, w.L26_moe_shared_gate_shared_up, w.L26_moe_shared_down, first=0)
    # L26.moe.sum.all_reduce
    yield ("all_reduce", (b.L26_moe_m,), (b.L26_moe_m_part,), {})
    # L27.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L26_moe_y, b.L27_attention_q_a_kv_a, b.L26_attention_y, b.L26_moe_m,
        w.L27_attention_norm, w.L27_attention_q_a_kv_a)
    # L27.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L27_attention_q_rot, b.L27_attention_o_q_c, b.L27_attention_qa,
        w.L27_attention_q_norm, w.L27_attention_q_b, w.L27_attention_mla_w_uk)
    # L27.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L27_attention_latent, b.L27_attention_k_pe, w.L27_attention_kv_norm, layer=27)
    # L27.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L27_attention_o, b.L27_attention_o_q_c, b.L27_attention_q_rot,
        w.L27_attention_mla_w_uv, layer=27)
    # L27.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L27_attention_attn_part, b.L27_attention_o, w.L27_attention_o_proj)
    # L27.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L27_attention_attn,), (b.L27_attention_attn_part,), {})
    # L27.moe.add_norm_router
    k.add_norm_router__n384(state, b.L27_attention_y, b.L27_moe_h, b.L27_moe_ids, b.L27_moe_w, b.L26_moe_y,
        b.L27_attention_attn, w.L27_moe_norm, w.L27_moe_router, w.L27_moe_router_bias)
    # L27.moe.experts_shared
    k.experts_shared__e384(state, b.L27_moe_m_part, b.L27_moe_h, b.L27_moe_ids, b.L27_moe_w, w.L27_moe_experts_gate_up,
        w.L27_moe_experts_down, w.L27_moe_shared_gate_shared_up, w.L27_moe_shared_down, first=0)
    # L27.moe.sum.all_reduce
    yield ("all_reduce", (b.L27_moe_m,), (b.L27_moe_m_part,), {})
    # L28.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L27_moe_y, b.L28_attention_q_a_kv_a, b.L27_attention_y, b.L27_moe_m,
        w.L28_attention_norm, w.L28_attention_q_a_kv_a)
    # L28.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L28_attention_q_rot, b.L28_attention_o_q_c, b.L28_attention_qa,
        w.L28_attention_q_norm, w.L28_attention_q_b, w.L28_attention_mla_w_uk)
    # L28.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L28_attention_latent, b.L28_attention_k_pe, w.L28_attention_kv_norm, layer=28)
    # L28.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L28_attention_o, b.L28_attention_o_q_c, b.L28_attention_q_rot,
        w.L28_attention_mla_w_uv, layer=28)
    # L28.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L28_attention_attn_part, b.L28_attention_o, w.L28_attention_o_proj)
    # L28.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L28_attention_attn,), (b.L28_attention_attn_part,), {})
    # L28.moe.add_norm_router
    k.add_norm_router__n384(state, b.L28_attention_y, b.L28_moe_h, b.L28_moe_ids, b.L28_moe_w, b.L27_moe_y,
        b.L28_attention_attn, w.L28_moe_norm, w.L28_moe_router, w.L28_moe_router_bias)
    # L28.moe.experts_shared
    k.experts_shared__e384(state, b.L28_moe_m_part, b.L28_moe_h, b.L28_moe_ids, b.L28_moe_w, w.L28_moe_experts_gate_up,
        w.L28_moe_experts_down, w.L28_moe_shared_gate_shared_up, w.L28_moe_shared_down, first=0)
    # L28.moe.sum.all_reduce
    yield ("all_reduce", (b.L28_moe_m,), (b.L28_moe_m_part,), {})
    # L29.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L28_moe_y, b.L29_attention_q_a_kv_a, b.L28_attention_y, b.L28_moe_m,
        w.L29_attention_norm, w.L29_attention_q_a_kv_a)
    # L29.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L29_attention_q_rot, b.L29_attention_o_q_c, b.L29_attention_qa,
        w.L29_attention_q_norm, w.L29_attention_q_b, w.L29_attention_mla_w_uk)
    # L29.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L29_attention_latent, b.L29_attention_k_pe, w.L29_attention_kv_norm, layer=29)
    # L29.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L29_attention_o, b.L29_attention_o_q_c, b.L29_attention_q_rot,
        w.L29_attention_mla_w_uv, layer=29)
    # L29.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L29_attention_attn_part, b.L29_attention_o, w.L29_attention_o_proj)
    # L29.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L29_attention_attn,), (b.L29_attention_attn_part,), {})
    # L29.moe.add_norm_router
    k.add_norm_router__n384(state, b.L29_attention_y, b.L29_moe_h, b.L29_moe_ids, b.L29_moe_w, b.L28_moe_y,
        b.L29_attention_attn, w.L29_moe_norm, w.L29_moe_router, w.L29_moe_router_bias)
    # L29.moe.experts_shared
    k.experts_shared__e384(state, b.L29_moe_m_part, b.L29_moe_h, b.L29_moe_ids, b.L29_moe_w, w.L29_moe_experts_gate_up,
        w.L29_moe_experts_down, w.L29_moe_shared_gate_shared_up, w.L29_moe_shared_down, first=0)
    # L29.moe.sum.all_reduce
    yield ("all_reduce", (b.L29_moe_m,), (b.L29_moe_m_part,), {})
    # L30.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L29_moe_y, b.L30_attention_q_a_kv_a, b.L29_attention_y, b.L29_moe_m,
        w.L30_attention_norm, w.L30_attention_q_a_kv_a)
    # L30.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L30_attention_q_rot, b.L30_attention_o_q_c, b.L30_attention_qa,
        w.L30_attention_q_norm, w.L30_attention_q_b, w.L30_attention_mla_w_uk)
    # L30.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L30_attention_latent, b.L30_attention_k_pe, w.L30_attention_kv_norm, layer=30)
    # L30.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L30_attention_o, b.L30_attention_o_q_c, b.L30_attention_q_rot,
        w.L30_attention_mla_w_uv, layer=30)
    # L30.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L30_attention_attn_part, b.L30_attention_o, w.L30_attention_o_proj)
    # L30.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L30_attention_attn,), (b.L30_attention_attn_part,), {})
    # L30.moe.add_norm_router
    k.add_norm_router__n384(state, b.L30_attention_y, b.L30_moe_h, b.L30_moe_ids, b.L30_moe_w, b.L29_moe_y,
        b.L30_attention_attn, w.L30_moe_norm, w.L30_moe_router, w.L30_moe_router_bias)
    # L30.moe.experts_shared
    k.experts_shared__e384(state, b.L30_moe_m_part, b.L30_moe_h, b.L30_moe_ids, b.L30_moe_w, w.L30_moe_experts_gate_up,
        w.L30_moe_experts_down, w.L30_moe_shared_gate_shared_up, w.L30_moe_shared_down, first=0)
    # L30.moe.sum.all_reduce
    yield ("all_reduce", (b.L30_moe_m,), (b.L30_moe_m_part,), {})
    # L31.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L30_moe_y, b.L31_attention_q_a_kv_a, b.L30_attention_y, b.L30_moe_m,
        w.L31_attention_norm, w.L31_attention_q_a_kv_a)
    # L31.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L31_attention_q_rot, b.L31_attention_o_q_c, b.L31_attention_qa,
        w.L31_attention_q_norm, w.L31_attention_q_b, w.L31_attention_mla_w_uk)
    # L31.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L31_attention_latent, b.L31_attention_k_pe, w.L31_attention_kv_norm, layer=31)
    # L31.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L31_attention_o, b.L31_attention_o_q_c, b.L31_attention_q_rot,
        w.L31_attention_mla_w_uv, layer=31)
    # L31.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L31_attention_attn_part, b.L31_attention_o, w.L31_attention_o_proj)
    # L31.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L31_attention_attn,), (b.L31_attention_attn_part,), {})
    # L31.moe.add_norm_router
    k.add_norm_router__n384(state, b.L31_attention_y, b.L31_moe_h, b.L31_moe_ids, b.L31_moe_w, b.L30_moe_y,
        b.L31_attention_attn, w.L31_moe_norm, w.L31_moe_router, w.L31_moe_router_bias)
    # L31.moe.experts_shared
    k.experts_shared__e384(state, b.L31_moe_m_part, b.L31_moe_h, b.L31_moe_ids, b.L31_moe_w, w.L31_moe_experts_gate_up,
        w.L31_moe_experts_down, w.L31_moe_shared_gate_shared_up, w.L31_moe_shared_down, first=0)
    # L31.moe.sum.all_reduce
    yield ("all_reduce", (b.L31_moe_m,), (b.L31_moe_m_part,), {})
    # L32.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L31_moe_y, b.L32_attention_q_a_kv_a, b.L31_attention_y, b.L31_moe_m,
        w.L32_attention_norm, w.L32_attention_q_a_kv_a)
    # L32.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L32_attention_q_rot, b.L32_attention_o_q_c, b.L32_attention_qa,
        w.L32_attention_q_norm, w.L32_attention_q_b, w.L32_attention_mla_w_uk)
    # L32.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L32_attention_latent, b.L32_attention_k_pe, w.L32_attention_kv_norm, layer=32)
    # L32.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L32_attention_o, b.L32_attention_o_q_c, b.L32_attention_q_rot,
        w.L32_attention_mla_w_uv, layer=32)
    # L32.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L32_attention_attn_part, b.L32_attention_o, w.L32_attention_o_proj)
    # L32.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L32_attention_attn,), (b.L32_attention_attn_part,), {})
    # L32.moe.add_norm_router
    k.add_norm_router__n384(state, b.L32_attention_y, b.L32_moe_h, b.L32_moe_ids, b.L32_moe_w, b.L31_moe_y,
        b.L32_attention_attn, w.L32_moe_norm, w.L32_moe_router, w.L32_moe_router_bias)
    # L32.moe.experts_shared
    k.experts_shared__e384(state, b.L32_moe_m_part, b.L32_moe_h, b.L32_moe_ids, b.L32_moe_w, w.L32_moe_experts_gate_up,
        w.L32_moe_experts_down, w.L32_moe_shared_gate_shared_up, w.L32_moe_shared_down, first=0)
    # L32.moe.sum.all_reduce
    yield ("all_reduce", (b.L32_moe_m,), (b.L32_moe_m_part,), {})
    # L33.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L32_moe_y, b.L33_attention_q_a_kv_a, b.L32_attention_y, b.L32_moe_m,
        w.L33_attention_norm, w.L33_attention_q_a_kv_a)
    # L33.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L33_attention_q_rot, b.L33_attention_o_q_c, b.L33_attention_qa,
        w.L33_attention_q_norm, w.L33_attention_q_b, w.L33_attention_mla_w_uk)
    # L33.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L33_attention_latent, b.L33_attention_k_pe, w.L33_attention_kv_norm, layer=33)
    # L33.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L33_attention_o, b.L33_attention_o_q_c, b.L33_attention_q_rot,
        w.L33_attention_mla_w_uv, layer=33)
    # L33.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L33_attention_attn_part, b.L33_attention_o, w.L33_attention_o_proj)
    # L33.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L33_attention_attn,), (b.L33_attention_attn_part,), {})
    # L33.moe.add_norm_router
    k.add_norm_router__n384(state, b.L33_attention_y, b.L33_moe_h, b.L33_moe_ids, b.L33_moe_w, b.L32_moe_y,
        b.L33_attention_attn, w.L33_moe_norm, w.L33_moe_router, w.L33_moe_router_bias)
    # L33.moe.experts_shared
    k.experts_shared__e384(state, b.L33_moe_m_part, b.L33_moe_h, b.L33_moe_ids, b.L33_moe_w, w.L33_moe_experts_gate_up,
        w.L33_moe_experts_down, w.L33_moe_shared_gate_shared_up, w.L33_moe_shared_down, first=0)
    # L33.moe.sum.all_reduce
    yield ("all_reduce", (b.L33_moe_m,), (b.L33_moe_m_part,), {})
    # L34.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L33_moe_y, b.L34_attention_q_a_kv_a, b.L33_attention_y, b.L33_moe_m,
        w.L34_attention_norm, w.L34_attention_q_a_kv_a)
    # L34.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L34_attention_q_rot, b.L34_attention_o_q_c, b.L34_attention_qa,
        w.L34_attention_q_norm, w.L34_attention_q_b, w.L34_attention_mla_w_uk)
    # L34.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L34_attention_latent, b.L34_attention_k_pe, w.L34_attention_kv_norm, layer=34)
    # L34.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L34_attention_o, b.L34_attention_o_q_c, b.L34_attention_q_rot,
        w.L34_attention_mla_w_uv, layer=34)
    # L34.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L34_attention_attn_part, b.L34_attention_o, w.L34_attention_o_proj)
    # L34.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L34_attention_attn,), (b.L34_attention_attn_part,), {})
    # L34.moe.add_norm_router
    k.add_norm_router__n384(state, b.L34_attention_y, b.L34_moe_h, b.L34_moe_ids, b.L34_moe_w, b.L33_moe_y,
        b.L34_attention_attn, w.L34_moe_norm, w.L34_moe_router, w.L34_moe_router_bias)
    # L34.moe.experts_shared
    k.experts_shared__e384(state, b.L34_moe_m_part, b.L34_moe_h, b.L34_moe_ids, b.L34_moe_w, w.L34_moe_experts_gate_up,
        w.L34_moe_experts_down, w.L34_moe_shared_gate_shared_up, w.L34_moe_shared_down, first=0)
    # L34.moe.sum.all_reduce
    yield ("all_reduce", (b.L34_moe_m,), (b.L34_moe_m_part,), {})
    # L35.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L34_moe_y, b.L35_attention_q_a_kv_a, b.L34_attention_y, b.L34_moe_m,
        w.L35_attention_norm, w.L35_attention_q_a_kv_a)
    # L35.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L35_attention_q_rot, b.L35_attention_o_q_c, b.L35_attention_qa,
        w.L35_attention_q_norm, w.L35_attention_q_b, w.L35_attention_mla_w_uk)
    # L35.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L35_attention_latent, b.L35_attention_k_pe, w.L35_attention_kv_norm, layer=35)
    # L35.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L35_attention_o, b.L35_attention_o_q_c, b.L35_attention_q_rot,
        w.L35_attention_mla_w_uv, layer=35)
    # L35.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L35_attention_attn_part, b.L35_attention_o, w.L35_attention_o_proj)
    # L35.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L35_attention_attn,), (b.L35_attention_attn_part,), {})
    # L35.moe.add_norm_router
    k.add_norm_router__n384(state, b.L35_attention_y, b.L35_moe_h, b.L35_moe_ids, b.L35_moe_w, b.L34_moe_y,
        b.L35_attention_attn, w.L35_moe_norm, w.L35_moe_router, w.L35_moe_router_bias)
    # L35.moe.experts_shared
    k.experts_shared__e384(state, b.L35_moe_m_part, b.L35_moe_h, b.L35_moe_ids, b.L35_moe_w, w.L35_moe_experts_gate_up,
        w.L35_moe_experts_down, w.L35_moe_shared_gate_shared_up, w.L35_moe_shared_down, first=0)
    # L35.moe.sum.all_reduce
    yield ("all_reduce", (b.L35_moe_m,), (b.L35_moe_m_part,), {})
    # L36.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L35_moe_y, b.L36_attention_q_a_kv_a, b.L35_attention_y, b.L35_moe_m,
        w.L36_attention_norm, w.L36_attention_q_a_kv_a)
    # L35.tap
    k.tap__n7168(state, b.features, b.L35_moe_y, index=3)
    # L36.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L36_attention_q_rot, b.L36_attention_o_q_c, b.L36_attention_qa,
        w.L36_attention_q_norm, w.L36_attention_q_b, w.L36_attention_mla_w_uk)
    # L36.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L36_attention_latent, b.L36_attention_k_pe, w.L36_attention_kv_norm, layer=36)
    # L36.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L36_attention_o, b.L36_attention_o_q_c, b.L36_attention_q_rot,
        w.L36_attention_mla_w_uv, layer=36)
    # L36.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L36_attention_attn_part, b.L36_attention_o, w.L36_attention_o_proj)
    # L36.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L36_attention_attn,), (b.L36_attention_attn_part,), {})
    # L36.moe.add_norm_router
    k.add_norm_router__n384(state, b.L36_attention_y, b.L36_moe_h, b.L36_moe_ids, b.L36_moe_w, b.L35_moe_y,
        b.L36_attention_attn, w.L36_moe_norm, w.L36_moe_router, w.L36_moe_router_bias)
    # L36.moe.experts_shared
    k.experts_shared__e384(state, b.L36_moe_m_part, b.L36_moe_h, b.L36_moe_ids, b.L36_moe_w, w.L36_moe_experts_gate_up,
        w.L36_moe_experts_down, w.L36_moe_shared_gate_shared_up, w.L36_moe_shared_down, first=0)
    # L36.moe.sum.all_reduce
    yield ("all_reduce", (b.L36_moe_m,), (b.L36_moe_m_part,), {})
    # L37.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L36_moe_y, b.L37_attention_q_a_kv_a, b.L36_attention_y, b.L36_moe_m,
        w.L37_attention_norm, w.L37_attention_q_a_kv_a)
    # L37.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L37_attention_q_rot, b.L37_attention_o_q_c, b.L37_attention_qa,
        w.L37_attention_q_norm, w.L37_attention_q_b, w.L37_attention_mla_w_uk)
    # L37.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L37_attention_latent, b.L37_attention_k_pe, w.L37_attention_kv_norm, layer=37)
    # L37.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L37_attention_o, b.L37_attention_o_q_c, b.L37_attention_q_rot,
        w.L37_attention_mla_w_uv, layer=37)
    # L37.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L37_attention_attn_part, b.L37_attention_o, w.L37_attention_o_proj)
    # L37.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L37_attention_attn,), (b.L37_attention_attn_part,), {})
    # L37.moe.add_norm_router
    k.add_norm_router__n384(state, b.L37_attention_y, b.L37_moe_h, b.L37_moe_ids, b.L37_moe_w, b.L36_moe_y,
        b.L37_attention_attn, w.L37_moe_norm, w.L37_moe_router, w.L37_moe_router_bias)
    # L37.moe.experts_shared
    k.experts_shared__e384(state, b.L37_moe_m_part, b.L37_moe_h, b.L37_moe_ids, b.L37_moe_w, w.L37_moe_experts_gate_up,
        w.L37_moe_experts_down, w.L37_moe_shared_gate_shared_up, w.L37_moe_shared_down, first=0)
    # L37.moe.sum.all_reduce
    yield ("all_reduce", (b.L37_moe_m,), (b.L37_moe_m_part,), {})
    # L38.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L37_moe_y, b.L38_attention_q_a_kv_a, b.L37_attention_y, b.L37_moe_m,
        w.L38_attention_norm, w.L38_attention_q_a_kv_a)
    # L38.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L38_attention_q_rot, b.L38_attention_o_q_c, b.L38_attention_qa,
        w.L38_attention_q_norm, w.L38_attention_q_b, w.L38_attention_mla_w_uk)
    # L38.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L38_attention_latent, b.L38_attention_k_pe, w.L38_attention_kv_norm, layer=38)
    # L38.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L38_attention_o, b.L38_attention_o_q_c, b.L38_attention_q_rot,
        w.L38_attention_mla_w_uv, layer=38)
    # L38.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L38_attention_attn_part, b.L38_attention_o, w.L38_attention_o_proj)
    # L38.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L38_attention_attn,), (b.L38_attention_attn_part,), {})
    # L38.moe.add_norm_router
    k.add_norm_router__n384(state, b.L38_attention_y, b.L38_moe_h, b.L38_moe_ids, b.L38_moe_w, b.L37_moe_y,
        b.L38_attention_attn, w.L38_moe_norm, w.L38_moe_router, w.L38_moe_router_bias)
    # L38.moe.experts_shared
    k.experts_shared__e384(state, b.L38_moe_m_part, b.L38_moe_h, b.L38_moe_ids, b.L38_moe_w, w.L38_moe_experts_gate_up,
        w.L38_moe_experts_down, w.L38_moe_shared_gate_shared_up, w.L38_moe_shared_down, first=0)
    # L38.moe.sum.all_reduce
    yield ("all_reduce", (b.L38_moe_m,), (b.L38_moe_m_part,), {})
    # L39.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L38_moe_y, b.L39_attention_q_a_kv_a, b.L38_attention_y, b.L38_moe_m,
        w.L39_attention_norm, w.L39_attention_q_a_kv_a)
    # L39.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L39_attention_q_rot, b.L39_attention_o_q_c, b.L39_attention_qa,
        w.L39_attention_q_norm, w.L39_attention_q_b, w.L39_attention_mla_w_uk)
    # L39.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L39_attention_latent, b.L39_attention_k_pe, w.L39_attention_kv_norm, layer=39)
    # L39.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L39_attention_o, b.L39_attention_o_q_c, b.L39_attention_q_rot,
        w.L39_attention_mla_w_uv, layer=39)
    # L39.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L39_attention_attn_part, b.L39_attention_o, w.L39_attention_o_proj)
    # L39.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L39_attention_attn,), (b.L39_attention_attn_part,), {})
    # L39.moe.add_norm_router
    k.add_norm_router__n384(state, b.L39_attention_y, b.L39_moe_h, b.L39_moe_ids, b.L39_moe_w, b.L38_moe_y,
        b.L39_attention_attn, w.L39_moe_norm, w.L39_moe_router, w.L39_moe_router_bias)
    # L39.moe.experts_shared
    k.experts_shared__e384(state, b.L39_moe_m_part, b.L39_moe_h, b.L39_moe_ids, b.L39_moe_w, w.L39_moe_experts_gate_up,
        w.L39_moe_experts_down, w.L39_moe_shared_gate_shared_up, w.L39_moe_shared_down, first=0)
    # L39.moe.sum.all_reduce
    yield ("all_reduce", (b.L39_moe_m,), (b.L39_moe_m_part,), {})
    # L40.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L39_moe_y, b.L40_attention_q_a_kv_a, b.L39_attention_y, b.L39_moe_m,
        w.L40_attention_norm, w.L40_attention_q_a_kv_a)
    # L40.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L40_attention_q_rot, b.L40_attention_o_q_c, b.L40_attention_qa,
        w.L40_attention_q_norm, w.L40_attention_q_b, w.L40_attention_mla_w_uk)
    # L40.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L40_attention_latent, b.L40_attention_k_pe, w.L40_attention_kv_norm, layer=40)
    # L40.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L40_attention_o, b.L40_attention_o_q_c, b.L40_attention_q_rot,
        w.L40_attention_mla_w_uv, layer=40)
    # L40.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L40_attention_attn_part, b.L40_attention_o, w.L40_attention_o_proj)
    # L40.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L40_attention_attn,), (b.L40_attention_attn_part,), {})
    # L40.moe.add_norm_router
    k.add_norm_router__n384(state, b.L40_attention_y, b.L40_moe_h, b.L40_moe_ids, b.L40_moe_w, b.L39_moe_y,
        b.L40_attention_attn, w.L40_moe_norm, w.L40_moe_router, w.L40_moe_router_bias)
    # L40.moe.experts_shared
    k.experts_shared__e384(state, b.L40_moe_m_part, b.L40_moe_h, b.L40_moe_ids, b.L40_moe_w, w.L40_moe_experts_gate_up,
        w.L40_moe_experts_down, w.L40_moe_shared_gate_shared_up, w.L40_moe_shared_down, first=0)
    # L40.moe.sum.all_reduce
    yield ("all_reduce", (b.L40_moe_m,), (b.L40_moe_m_part,), {})
    # L41.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L40_moe_y, b.L41_attention_q_a_kv_a, b.L40_attention_y, b.L40_moe_m,
        w.L41_attention_norm, w.L41_attention_q_a_kv_a)
    # L41.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L41_attention_q_rot, b.L41_attention_o_q_c, b.L41_attention_qa,
        w.L41_attention_q_norm, w.L41_attention_q_b, w.L41_attention_mla_w_uk)
    # L41.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L41_attention_latent, b.L41_attention_k_pe, w.L41_attention_kv_norm, layer=41)
    # L41.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L41_attention_o, b.L41_attention_o_q_c, b.L41_attention_q_rot,
        w.L41_attention_mla_w_uv, layer=41)
    # L41.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L41_attention_attn_part, b.L41_attention_o, w.L41_attention_o_proj)
    # L41.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L41_attention_attn,), (b.L41_attention_attn_part,), {})
    # L41.moe.add_norm_router
    k.add_norm_router__n384(state, b.L41_attention_y, b.L41_moe_h, b.L41_moe_ids, b.L41_moe_w, b.L40_moe_y,
        b.L41_attention_attn, w.L41_moe_norm, w.L41_moe_router, w.L41_moe_router_bias)
    # L41.moe.experts_shared
    k.experts_shared__e384(state, b.L41_moe_m_part, b.L41_moe_h, b.L41_moe_ids, b.L41_moe_w, w.L41_moe_experts_gate_up,
        w.L41_moe_experts_down, w.L41_moe_shared_gate_shared_up, w.L41_moe_shared_down, first=0)
    # L41.moe.sum.all_reduce
    yield ("all_reduce", (b.L41_moe_m,), (b.L41_moe_m_part,), {})
    # L42.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L41_moe_y, b.L42_attention_q_a_kv_a, b.L41_attention_y, b.L41_moe_m,
        w.L42_attention_norm, w.L42_attention_q_a_kv_a)
    # L42.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L42_attention_q_rot, b.L42_attention_o_q_c, b.L42_attention_qa,
        w.L42_attention_q_norm, w.L42_attention_q_b, w.L42_attention_mla_w_uk)
    # L42.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L42_attention_latent, b.L42_attention_k_pe, w.L42_attention_kv_norm, layer=42)
    # L42.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L42_attention_o, b.L42_attention_o_q_c, b.L42_attention_q_rot,
        w.L42_attention_mla_w_uv, layer=42)
    # L42.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L42_attention_attn_part, b.L42_attention_o, w.L42_attention_o_proj)
    # L42.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L42_attention_attn,), (b.L42_attention_attn_part,), {})
    # L42.moe.add_norm_router
    k.add_norm_router__n384(state, b.L42_attention_y, b.L42_moe_h, b.L42_moe_ids, b.L42_moe_w, b.L41_moe_y,
        b.L42_attention_attn, w.L42_moe_norm, w.L42_moe_router, w.L42_moe_router_bias)
    # L42.moe.experts_shared
    k.experts_shared__e384(state, b.L42_moe_m_part, b.L42_moe_h, b.L42_moe_ids, b.L42_moe_w, w.L42_moe_experts_gate_up,
        w.L42_moe_experts_down, w.L42_moe_shared_gate_shared_up, w.L42_moe_shared_down, first=0)
    # L42.moe.sum.all_reduce
    yield ("all_reduce", (b.L42_moe_m,), (b.L42_moe_m_part,), {})
    # L43.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L42_moe_y, b.L43_attention_q_a_kv_a, b.L42_attention_y, b.L42_moe_m,
        w.L43_attention_norm, w.L43_attention_q_a_kv_a)
    # L43.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L43_attention_q_rot, b.L43_attention_o_q_c, b.L43_attention_qa,
        w.L43_attention_q_norm, w.L43_attention_q_b, w.L43_attention_mla_w_uk)
    # L43.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L43_attention_latent, b.L43_attention_k_pe, w.L43_attention_kv_norm, layer=43)
    # L43.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L43_attention_o, b.L43_attention_o_q_c, b.L43_attention_q_rot,
        w.L43_attention_mla_w_uv, layer=43)
    # L43.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L43_attention_attn_part, b.L43_attention_o, w.L43_attention_o_proj)
    # L43.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L43_attention_attn,), (b.L43_attention_attn_part,), {})
    # L43.moe.add_norm_router
    k.add_norm_router__n384(state, b.L43_attention_y, b.L43_moe_h, b.L43_moe_ids, b.L43_moe_w, b.L42_moe_y,
        b.L43_attention_attn, w.L43_moe_norm, w.L43_moe_router, w.L43_moe_router_bias)
    # L43.moe.experts_shared
    k.experts_shared__e384(state, b.L43_moe_m_part, b.L43_moe_h, b.L43_moe_ids, b.L43_moe_w, w.L43_moe_experts_gate_up,
        w.L43_moe_experts_down, w.L43_moe_shared_gate_shared_up, w.L43_moe_shared_down, first=0)
    # L43.moe.sum.all_reduce
    yield ("all_reduce", (b.L43_moe_m,), (b.L43_moe_m_part,), {})
    # L44.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L43_moe_y, b.L44_attention_q_a_kv_a, b.L43_attention_y, b.L43_moe_m,
        w.L44_attention_norm, w.L44_attention_q_a_kv_a)
    # L44.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L44_attention_q_rot, b.L44_attention_o_q_c, b.L44_attention_qa,
        w.L44_attention_q_norm, w.L44_attention_q_b, w.L44_attention_mla_w_uk)
    # L44.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L44_attention_latent, b.L44_attention_k_pe, w.L44_attention_kv_norm, layer=44)
    # L44.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L44_attention_o, b.L44_attention_o_q_c, b.L44_attention_q_rot,
        w.L44_attention_mla_w_uv, layer=44)
    # L44.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L44_attention_attn_part, b.L44_attention_o, w.L44_attention_o_proj)
    # L44.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L44_attention_attn,), (b.L44_attention_attn_part,), {})
    # L44.moe.add_norm_router
    k.add_norm_router__n384(state, b.L44_attention_y, b.L44_moe_h, b.L44_moe_ids, b.L44_moe_w, b.L43_moe_y,
        b.L44_attention_attn, w.L44_moe_norm, w.L44_moe_router, w.L44_moe_router_bias)
    # L44.moe.experts_shared
    k.experts_shared__e384(state, b.L44_moe_m_part, b.L44_moe_h, b.L44_moe_ids, b.L44_moe_w, w.L44_moe_experts_gate_up,
        w.L44_moe_experts_down, w.L44_moe_shared_gate_shared_up, w.L44_moe_shared_down, first=0)
    # L44.moe.sum.all_reduce
    yield ("all_reduce", (b.L44_moe_m,), (b.L44_moe_m_part,), {})
    # L45.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L44_moe_y, b.L45_attention_q_a_kv_a, b.L44_attention_y, b.L44_moe_m,
        w.L45_attention_norm, w.L45_attention_q_a_kv_a)
    # L45.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L45_attention_q_rot, b.L45_attention_o_q_c, b.L45_attention_qa,
        w.L45_attention_q_norm, w.L45_attention_q_b, w.L45_attention_mla_w_uk)
    # L45.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L45_attention_latent, b.L45_attention_k_pe, w.L45_attention_kv_norm, layer=45)
    # L45.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L45_attention_o, b.L45_attention_o_q_c, b.L45_attention_q_rot,
        w.L45_attention_mla_w_uv, layer=45)
    # L45.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L45_attention_attn_part, b.L45_attention_o, w.L45_attention_o_proj)
    # L45.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L45_attention_attn,), (b.L45_attention_attn_part,), {})
    # L45.moe.add_norm_router
    k.add_norm_router__n384(state, b.L45_attention_y, b.L45_moe_h, b.L45_moe_ids, b.L45_moe_w, b.L44_moe_y,
        b.L45_attention_attn, w.L45_moe_norm, w.L45_moe_router, w.L45_moe_router_bias)
    # L45.moe.experts_shared
    k.experts_shared__e384(state, b.L45_moe_m_part, b.L45_moe_h, b.L45_moe_ids, b.L45_moe_w, w.L45_moe_experts_gate_up,
        w.L45_moe_experts_down, w.L45_moe_shared_gate_shared_up, w.L45_moe_shared_down, first=0)
    # L45.moe.sum.all_reduce
    yield ("all_reduce", (b.L45_moe_m,), (b.L45_moe_m_part,), {})
    # L46.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L45_moe_y, b.L46_attention_q_a_kv_a, b.L45_attention_y, b.L45_moe_m,
        w.L46_attention_norm, w.L46_attention_q_a_kv_a)
    # L46.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L46_attention_q_rot, b.L46_attention_o_q_c, b.L46_attention_qa,
        w.L46_attention_q_norm, w.L46_attention_q_b, w.L46_attention_mla_w_uk)
    # L46.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L46_attention_latent, b.L46_attention_k_pe, w.L46_attention_kv_norm, layer=46)
    # L46.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L46_attention_o, b.L46_attention_o_q_c, b.L46_attention_q_rot,
        w.L46_attention_mla_w_uv, layer=46)
    # L46.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L46_attention_attn_part, b.L46_attention_o, w.L46_attention_o_proj)
    # L46.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L46_attention_attn,), (b.L46_attention_attn_part,), {})
    # L46.moe.add_norm_router
    k.add_norm_router__n384(state, b.L46_attention_y, b.L46_moe_h, b.L46_moe_ids, b.L46_moe_w, b.L45_moe_y,
        b.L46_attention_attn, w.L46_moe_norm, w.L46_moe_router, w.L46_moe_router_bias)
    # L46.moe.experts_shared
    k.experts_shared__e384(state, b.L46_moe_m_part, b.L46_moe_h, b.L46_moe_ids, b.L46_moe_w, w.L46_moe_experts_gate_up,
        w.L46_moe_experts_down, w.L46_moe_shared_gate_shared_up, w.L46_moe_shared_down, first=0)
    # L46.moe.sum.all_reduce
    yield ("all_reduce", (b.L46_moe_m,), (b.L46_moe_m_part,), {})
    # L47.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L46_moe_y, b.L47_attention_q_a_kv_a, b.L46_attention_y, b.L46_moe_m,
        w.L47_attention_norm, w.L47_attention_q_a_kv_a)
    # L47.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L47_attention_q_rot, b.L47_attention_o_q_c, b.L47_attention_qa,
        w.L47_attention_q_norm, w.L47_attention_q_b, w.L47_attention_mla_w_uk)
    # L47.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L47_attention_latent, b.L47_attention_k_pe, w.L47_attention_kv_norm, layer=47)
    # L47.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L47_attention_o, b.L47_attention_o_q_c, b.L47_attention_q_rot,
        w.L47_attention_mla_w_uv, layer=47)
    # L47.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L47_attention_attn_part, b.L47_attention_o, w.L47_attention_o_proj)
    # L47.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L47_attention_attn,), (b.L47_attention_attn_part,), {})
    # L47.moe.add_norm_router
    k.add_norm_router__n384(state, b.L47_attention_y, b.L47_moe_h, b.L47_moe_ids, b.L47_moe_w, b.L46_moe_y,
        b.L47_attention_attn, w.L47_moe_norm, w.L47_moe_router, w.L47_moe_router_bias)
    # L47.moe.experts_shared
    k.experts_shared__e384(state, b.L47_moe_m_part, b.L47_moe_h, b.L47_moe_ids, b.L47_moe_w, w.L47_moe_experts_gate_up,
        w.L47_moe_experts_down, w.L47_moe_shared_gate_shared_up, w.L47_moe_shared_down, first=0)
    # L47.moe.sum.all_reduce
    yield ("all_reduce", (b.L47_moe_m,), (b.L47_moe_m_part,), {})
    # L48.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L47_moe_y, b.L48_attention_q_a_kv_a, b.L47_attention_y, b.L47_moe_m,
        w.L48_attention_norm, w.L48_attention_q_a_kv_a)
    # L47.tap
    k.tap__n7168(state, b.features, b.L47_moe_y, index=4)
    # L48.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L48_attention_q_rot, b.L48_attention_o_q_c, b.L48_attention_qa,
        w.L48_attention_q_norm, w.L48_attention_q_b, w.L48_attention_mla_w_uk)
    # L48.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L48_attention_latent, b.L48_attention_k_pe, w.L48_attention_kv_norm, layer=48)
    # L48.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L48_attention_o, b.L48_attention_o_q_c, b.L48_attention_q_rot,
        w.L48_attention_mla_w_uv, layer=48)
    # L48.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L48_attention_attn_part, b.L48_attention_o, w.L48_attention_o_proj)
    # L48.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L48_attention_attn,), (b.L48_attention_attn_part,), {})
    # L48.moe.add_norm_router
    k.add_norm_router__n384(state, b.L48_attention_y, b.L48_moe_h, b.L48_moe_ids, b.L48_moe_w, b.L47_moe_y,
        b.L48_attention_attn, w.L48_moe_norm, w.L48_moe_router, w.L48_moe_router_bias)
    # L48.moe.experts_shared
    k.experts_shared__e384(state, b.L48_moe_m_part, b.L48_moe_h, b.L48_moe_ids, b.L48_moe_w, w.L48_moe_experts_gate_up,
        w.L48_moe_experts_down, w.L48_moe_shared_gate_shared_up, w.L48_moe_shared_down, first=0)
    # L48.moe.sum.all_reduce
    yield ("all_reduce", (b.L48_moe_m,), (b.L48_moe_m_part,), {})
    # L49.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L48_moe_y, b.L49_attention_q_a_kv_a, b.L48_attention_y, b.L48_moe_m,
        w.L49_attention_norm, w.L49_attention_q_a_kv_a)
    # L49.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L49_attention_q_rot, b.L49_attention_o_q_c, b.L49_attention_qa,
        w.L49_attention_q_norm, w.L49_attention_q_b, w.L49_attention_mla_w_uk)
    # L49.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L49_attention_latent, b.L49_attention_k_pe, w.L49_attention_kv_norm, layer=49)
    # L49.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L49_attention_o, b.L49_attention_o_q_c, b.L49_attention_q_rot,
        w.L49_attention_mla_w_uv, layer=49)
    # L49.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L49_attention_attn_part, b.L49_attention_o, w.L49_attention_o_proj)
    # L49.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L49_attention_attn,), (b.L49_attention_attn_part,), {})
    # L49.moe.add_norm_router
    k.add_norm_router__n384(state, b.L49_attention_y, b.L49_moe_h, b.L49_moe_ids, b.L49_moe_w, b.L48_moe_y,
        b.L49_attention_attn, w.L49_moe_norm, w.L49_moe_router, w.L49_moe_router_bias)
    # L49.moe.experts_shared
    k.experts_shared__e384(state, b.L49_moe_m_part, b.L49_moe_h, b.L49_moe_ids, b.L49_moe_w, w.L49_moe_experts_gate_up,
        w.L49_moe_experts_down, w.L49_moe_shared_gate_shared_up, w.L49_moe_shared_down, first=0)
    # L49.moe.sum.all_reduce
    yield ("all_reduce", (b.L49_moe_m,), (b.L49_moe_m_part,), {})
    # L50.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L49_moe_y, b.L50_attention_q_a_kv_a, b.L49_attention_y, b.L49_moe_m,
        w.L50_attention_norm, w.L50_attention_q_a_kv_a)
    # L50.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L50_attention_q_rot, b.L50_attention_o_q_c, b.L50_attention_qa,
        w.L50_attention_q_norm, w.L50_attention_q_b, w.L50_attention_mla_w_uk)
    # L50.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L50_attention_latent, b.L50_attention_k_pe, w.L50_attention_kv_norm, layer=50)
    # L50.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L50_attention_o, b.L50_attention_o_q_c, b.L50_attention_q_rot,
        w.L50_attention_mla_w_uv, layer=50)
    # L50.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L50_attention_attn_part, b.L50_attention_o, w.L50_attention_o_proj)
    # L50.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L50_attention_attn,), (b.L50_attention_attn_part,), {})
    # L50.moe.add_norm_router
    k.add_norm_router__n384(state, b.L50_attention_y, b.L50_moe_h, b.L50_moe_ids, b.L50_moe_w, b.L49_moe_y,
        b.L50_attention_attn, w.L50_moe_norm, w.L50_moe_router, w.L50_moe_router_bias)
    # L50.moe.experts_shared
    k.experts_shared__e384(state, b.L50_moe_m_part, b.L50_moe_h, b.L50_moe_ids, b.L50_moe_w, w.L50_moe_experts_gate_up,
        w.L50_moe_experts_down, w.L50_moe_shared_gate_shared_up, w.L50_moe_shared_down, first=0)
    # L50.moe.sum.all_reduce
    yield ("all_reduce", (b.L50_moe_m,), (b.L50_moe_m_part,), {})
    # L51.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L50_moe_y, b.L51_attention_q_a_kv_a, b.L50_attention_y, b.L50_moe_m,
        w.L51_attention_norm, w.L51_attention_q_a_kv_a)
    # L51.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L51_attention_q_rot, b.L51_attention_o_q_c, b.L51_attention_qa,
        w.L51_attention_q_norm, w.L51_attention_q_b, w.L51_attention_mla_w_uk)
    # L51.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L51_attention_latent, b.L51_attention_k_pe, w.L51_attention_kv_norm, layer=51)
    # L51.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L51_attention_o, b.L51_attention_o_q_c, b.L51_attention_q_rot,
        w.L51_attention_mla_w_uv, layer=51)
    # L51.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L51_attention_attn_part, b.L51_attention_o, w.L51_attention_o_proj)
    # L51.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L51_attention_attn,), (b.L51_attention_attn_part,), {})
    # L51.moe.add_norm_router
    k.add_norm_router__n384(state, b.L51_attention_y, b.L51_moe_h, b.L51_moe_ids, b.L51_moe_w, b.L50_moe_y,
        b.L51_attention_attn, w.L51_moe_norm, w.L51_moe_router, w.L51_moe_router_bias)
    # L51.moe.experts_shared
    k.experts_shared__e384(state, b.L51_moe_m_part, b.L51_moe_h, b.L51_moe_ids, b.L51_moe_w, w.L51_moe_experts_gate_up,
        w.L51_moe_experts_down, w.L51_moe_shared_gate_shared_up, w.L51_moe_shared_down, first=0)
    # L51.moe.sum.all_reduce
    yield ("all_reduce", (b.L51_moe_m,), (b.L51_moe_m_part,), {})
    # L52.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L51_moe_y, b.L52_attention_q_a_kv_a, b.L51_attention_y, b.L51_moe_m,
        w.L52_attention_norm, w.L52_attention_q_a_kv_a)
    # L52.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L52_attention_q_rot, b.L52_attention_o_q_c, b.L52_attention_qa,
        w.L52_attention_q_norm, w.L52_attention_q_b, w.L52_attention_mla_w_uk)
    # L52.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L52_attention_latent, b.L52_attention_k_pe, w.L52_attention_kv_norm, layer=52)
    # L52.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L52_attention_o, b.L52_attention_o_q_c, b.L52_attention_q_rot,
        w.L52_attention_mla_w_uv, layer=52)
    # L52.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L52_attention_attn_part, b.L52_attention_o, w.L52_attention_o_proj)
    # L52.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L52_attention_attn,), (b.L52_attention_attn_part,), {})
    # L52.moe.add_norm_router
    k.add_norm_router__n384(state, b.L52_attention_y, b.L52_moe_h, b.L52_moe_ids, b.L52_moe_w, b.L51_moe_y,
        b.L52_attention_attn, w.L52_moe_norm, w.L52_moe_router, w.L52_moe_router_bias)
    # L52.moe.experts_shared
    k.experts_shared__e384(state, b.L52_moe_m_part, b.L52_moe_h, b.L52_moe_ids, b.L52_moe_w, w.L52_moe_experts_gate_up,
        w.L52_moe_experts_down, w.L52_moe_shared_gate_shared_up, w.L52_moe_shared_down, first=0)
    # L52.moe.sum.all_reduce
    yield ("all_reduce", (b.L52_moe_m,), (b.L52_moe_m_part,), {})
    # L53.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L52_moe_y, b.L53_attention_q_a_kv_a, b.L52_attention_y, b.L52_moe_m,
        w.L53_attention_norm, w.L53_attention_q_a_kv_a)
    # L53.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L53_attention_q_rot, b.L53_attention_o_q_c, b.L53_attention_qa,
        w.L53_attention_q_norm, w.L53_attention_q_b, w.L53_attention_mla_w_uk)
    # L53.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L53_attention_latent, b.L53_attention_k_pe, w.L53_attention_kv_norm, layer=53)
    # L53.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L53_attention_o, b.L53_attention_o_q_c, b.L53_attention_q_rot,
        w.L53_attention_mla_w_uv, layer=53)
    # L53.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L53_attention_attn_part, b.L53_attention_o, w.L53_attention_o_proj)
    # L53.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L53_attention_attn,), (b.L53_attention_attn_part,), {})
    # L53.moe.add_norm_router
    k.add_norm_router__n384(state, b.L53_attention_y, b.L53_moe_h, b.L53_moe_ids, b.L53_moe_w, b.L52_moe_y,
        b.L53_attention_attn, w.L53_moe_norm, w.L53_moe_router, w.L53_moe_router_bias)
    # L53.moe.experts_shared
    k.experts_shared__e384(state, b.L53_moe_m_part, b.L53_moe_h, b.L53_moe_ids, b.L53_moe_w, w.L53_moe_experts_gate_up,
        w.L53_moe_experts_down, w.L53_moe_shared_gate_shared_up, w.L53_moe_shared_down, first=0)
    # L53.moe.sum.all_reduce
    yield ("all_reduce", (b.L53_moe_m,), (b.L53_moe_m_part,), {})
    # L54.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L53_moe_y, b.L54_attention_q_a_kv_a, b.L53_attention_y, b.L53_moe_m,
        w.L54_attention_norm, w.L54_attention_q_a_kv_a)
    # L54.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L54_attention_q_rot, b.L54_attention_o_q_c, b.L54_attention_qa,
        w.L54_attention_q_norm, w.L54_attention_q_b, w.L54_attention_mla_w_uk)
    # L54.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L54_attention_latent, b.L54_attention_k_pe, w.L54_attention_kv_norm, layer=54)
    # L54.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L54_attention_o, b.L54_attention_o_q_c, b.L54_attention_q_rot,
        w.L54_attention_mla_w_uv, layer=54)
    # L54.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L54_attention_attn_part, b.L54_attention_o, w.L54_attention_o_proj)
    # L54.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L54_attention_attn,), (b.L54_attention_attn_part,), {})
    # L54.moe.add_norm_router
    k.add_norm_router__n384(state, b.L54_attention_y, b.L54_moe_h, b.L54_moe_ids, b.L54_moe_w, b.L53_moe_y,
        b.L54_attention_attn, w.L54_moe_norm, w.L54_moe_router, w.L54_moe_router_bias)
    # L54.moe.experts_shared
    k.experts_shared__e384(state, b.L54_moe_m_part, b.L54_moe_h, b.L54_moe_ids, b.L54_moe_w, w.L54_moe_experts_gate_up,
        w.L54_moe_experts_down, w.L54_moe_shared_gate_shared_up, w.L54_moe_shared_down, first=0)
    # L54.moe.sum.all_reduce
    yield ("all_reduce", (b.L54_moe_m,), (b.L54_moe_m_part,), {})
    # L55.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L54_moe_y, b.L55_attention_q_a_kv_a, b.L54_attention_y, b.L54_moe_m,
        w.L55_attention_norm, w.L55_attention_q_a_kv_a)
    # L55.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L55_attention_q_rot, b.L55_attention_o_q_c, b.L55_attention_qa,
        w.L55_attention_q_norm, w.L55_attention_q_b, w.L55_attention_mla_w_uk)
    # L55.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L55_attention_latent, b.L55_attention_k_pe, w.L55_attention_kv_norm, layer=55)
    # L55.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L55_attention_o, b.L55_attention_o_q_c, b.L55_attention_q_rot,
        w.L55_attention_mla_w_uv, layer=55)
    # L55.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L55_attention_attn_part, b.L55_attention_o, w.L55_attention_o_proj)
    # L55.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L55_attention_attn,), (b.L55_attention_attn_part,), {})
    # L55.moe.add_norm_router
    k.add_norm_router__n384(state, b.L55_attention_y, b.L55_moe_h, b.L55_moe_ids, b.L55_moe_w, b.L54_moe_y,
        b.L55_attention_attn, w.L55_moe_norm, w.L55_moe_router, w.L55_moe_router_bias)
    # L55.moe.experts_shared
    k.experts_shared__e384(state, b.L55_moe_m_part, b.L55_moe_h, b.L55_moe_ids, b.L55_moe_w, w.L55_moe_experts_gate_up,
        w.L55_moe_experts_down, w.L55_moe_shared_gate_shared_up, w.L55_moe_shared_down, first=0)
    # L55.moe.sum.all_reduce
    yield ("all_reduce", (b.L55_moe_m,), (b.L55_moe_m_part,), {})
    # L56.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L55_moe_y, b.L56_attention_q_a_kv_a, b.L55_attention_y, b.L55_moe_m,
        w.L56_attention_norm, w.L56_attention_q_a_kv_a)
    # L56.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L56_attention_q_rot, b.L56_attention_o_q_c, b.L56_attention_qa,
        w.L56_attention_q_norm, w.L56_attention_q_b, w.L56_attention_mla_w_uk)
    # L56.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L56_attention_latent, b.L56_attention_k_pe, w.L56_attention_kv_norm, layer=56)
    # L56.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L56_attention_o, b.L56_attention_o_q_c, b.L56_attention_q_rot,
        w.L56_attention_mla_w_uv, layer=56)
    # L56.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L56_attention_attn_part, b.L56_attention_o, w.L56_attention_o_proj)
    # L56.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L56_attention_attn,), (b.L56_attention_attn_part,), {})
    # L56.moe.add_norm_router
    k.add_norm_router__n384(state, b.L56_attention_y, b.L56_moe_h, b.L56_moe_ids, b.L56_moe_w, b.L55_moe_y,
        b.L56_attention_attn, w.L56_moe_norm, w.L56_moe_router, w.L56_moe_router_bias)
    # L56.moe.experts_shared
    k.experts_shared__e384(state, b.L56_moe_m_part, b.L56_moe_h, b.L56_moe_ids, b.L56_moe_w, w.L56_moe_experts_gate_up,
        w.L56_moe_experts_down, w.L56_moe_shared_gate_shared_up, w.L56_moe_shared_down, first=0)
    # L56.moe.sum.all_reduce
    yield ("all_reduce", (b.L56_moe_m,), (b.L56_moe_m_part,), {})
    # L57.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L56_moe_y, b.L57_attention_q_a_kv_a, b.L56_attention_y, b.L56_moe_m,
        w.L57_attention_norm, w.L57_attention_q_a_kv_a)
    # L57.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L57_attention_q_rot, b.L57_attention_o_q_c, b.L57_attention_qa,
        w.L57_attention_q_norm, w.L57_attention_q_b, w.L57_attention_mla_w_uk)
    # L57.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L57_attention_latent, b.L57_attention_k_pe, w.L57_attention_kv_norm, layer=57)
    # L57.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L57_attention_o, b.L57_attention_o_q_c, b.L57_attention_q_rot,
        w.L57_attention_mla_w_uv, layer=57)
    # L57.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L57_attention_attn_part, b.L57_attention_o, w.L57_attention_o_proj)
    # L57.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L57_attention_attn,), (b.L57_attention_attn_part,), {})
    # L57.moe.add_norm_router
    k.add_norm_router__n384(state, b.L57_attention_y, b.L57_moe_h, b.L57_moe_ids, b.L57_moe_w, b.L56_moe_y,
        b.L57_attention_attn, w.L57_moe_norm, w.L57_moe_router, w.L57_moe_router_bias)
    # L57.moe.experts_shared
    k.experts_shared__e384(state, b.L57_moe_m_part, b.L57_moe_h, b.L57_moe_ids, b.L57_moe_w, w.L57_moe_experts_gate_up,
        w.L57_moe_experts_down, w.L57_moe_shared_gate_shared_up, w.L57_moe_shared_down, first=0)
    # L57.moe.sum.all_reduce
    yield ("all_reduce", (b.L57_moe_m,), (b.L57_moe_m_part,), {})
    # L58.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L57_moe_y, b.L58_attention_q_a_kv_a, b.L57_attention_y, b.L57_moe_m,
        w.L58_attention_norm, w.L58_attention_q_a_kv_a)
    # L58.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L58_attention_q_rot, b.L58_attention_o_q_c, b.L58_attention_qa,
        w.L58_attention_q_norm, w.L58_attention_q_b, w.L58_attention_mla_w_uk)
    # L58.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L58_attention_latent, b.L58_attention_k_pe, w.L58_attention_kv_norm, layer=58)
    # L58.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L58_attention_o, b.L58_attention_o_q_c, b.L58_attention_q_rot,
        w.L58_attention_mla_w_uv, layer=58)
    # L58.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L58_attention_attn_part, b.L58_attention_o, w.L58_attention_o_proj)
    # L58.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L58_attention_attn,), (b.L58_attention_attn_part,), {})
    # L58.moe.add_norm_router
    k.add_norm_router__n384(state, b.L58_attention_y, b.L58_moe_h, b.L58_moe_ids, b.L58_moe_w, b.L57_moe_y,
        b.L58_attention_attn, w.L58_moe_norm, w.L58_moe_router, w.L58_moe_router_bias)
    # L58.moe.experts_shared
    k.experts_shared__e384(state, b.L58_moe_m_part, b.L58_moe_h, b.L58_moe_ids, b.L58_moe_w, w.L58_moe_experts_gate_up,
        w.L58_moe_experts_down, w.L58_moe_shared_gate_shared_up, w.L58_moe_shared_down, first=0)
    # L58.moe.sum.all_reduce
    yield ("all_reduce", (b.L58_moe_m,), (b.L58_moe_m_part,), {})
    # L59.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L58_moe_y, b.L59_attention_q_a_kv_a, b.L58_attention_y, b.L58_moe_m,
        w.L59_attention_norm, w.L59_attention_q_a_kv_a)
    # L58.tap
    k.tap__n7168(state, b.features, b.L58_moe_y, index=5)
    # L59.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L59_attention_q_rot, b.L59_attention_o_q_c, b.L59_attention_qa,
        w.L59_attention_q_norm, w.L59_attention_q_b, w.L59_attention_mla_w_uk)
    # L59.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L59_attention_latent, b.L59_attention_k_pe, w.L59_attention_kv_norm, layer=59)
    # L59.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L59_attention_o, b.L59_attention_o_q_c, b.L59_attention_q_rot,
        w.L59_attention_mla_w_uv, layer=59)
    # L59.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L59_attention_attn_part, b.L59_attention_o, w.L59_attention_o_proj)
    # L59.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L59_attention_attn,), (b.L59_attention_attn_part,), {})
    # L59.moe.add_norm_router
    k.add_norm_router__n384(state, b.L59_attention_y, b.L59_moe_h, b.L59_moe_ids, b.L59_moe_w, b.L58_moe_y,
        b.L59_attention_attn, w.L59_moe_norm, w.L59_moe_router, w.L59_moe_router_bias)
    # L59.moe.experts_shared
    k.experts_shared__e384(state, b.L59_moe_m_part, b.L59_moe_h, b.L59_moe_ids, b.L59_moe_w, w.L59_moe_experts_gate_up,
        w.L59_moe_experts_down, w.L59_moe_shared_gate_shared_up, w.L59_moe_shared_down, first=0)
    # L59.moe.sum.all_reduce
    yield ("all_reduce", (b.L59_moe_m,), (b.L59_moe_m_part,), {})
    # L60.attention.add_norm_linear
    k.add_norm_linear__w2112x7168(state, b.L59_moe_y, b.L60_attention_q_a_kv_a, b.L59_attention_y, b.L59_moe_m,
        w.L60_attention_norm, w.L60_attention_q_a_kv_a)
    # L60.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w1536x1536(state, b.L60_attention_q_rot, b.L60_attention_o_q_c, b.L60_attention_qa,
        w.L60_attention_q_norm, w.L60_attention_q_b, w.L60_attention_mla_w_uk)
    # L60.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L60_attention_latent, b.L60_attention_k_pe, w.L60_attention_kv_norm, layer=60)
    # L60.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L60_attention_o, b.L60_attention_o_q_c, b.L60_attention_q_rot,
        w.L60_attention_mla_w_uv, layer=60)
    # L60.attention.o_proj
    k.linear__w7168x1024_m128(state, b.L60_attention_attn_part, b.L60_attention_o, w.L60_attention_o_proj)
    # L60.attention.o_proj.all_reduce
    yield ("all_reduce", (b.L60_attention_attn,), (b.L60_attention_attn_part,), {})
    # L60.moe.add_norm_router
    k.add_norm_router__n384(state, b.L60_attention_y, b.L60_moe_h, b.L60_moe_ids, b.L60_moe_w, b.L59_moe_y,
        b.L60_attention_attn, w.L60_moe_norm, w.L60_moe_router, w.L60_moe_router_bias)
    # L60.moe.experts_shared
    k.experts_shared__e384(state, b.L60_moe_m_part, b.L60_moe_h, b.L60_moe_ids, b.L60_moe_w, w.L60_moe_experts_gate_up,
        w.L60_moe_experts_down, w.L60_moe_shared_gate_shared_up, w.L60_moe_shared_down, first=0)
    # L60.moe.sum.all_reduce
    yield ("all_reduce", (b.L60_moe_m,), (b.L60_moe_m_part,), {})
    # L60.moe.residual
    k.add__n7168(state, b.L60_moe_y, b.L60_attention_y, b.L60_moe_m)
    # head.take_norm_linear
    k.take_norm_linear__w20480x7168_m64(state, b.logits_part, b.L60_moe_y, w.head_norm, w.head_lm_head)
    # head.lm_head.all_gather
    yield ("all_gather", (b.logits,), (b.logits_part,), {"axis": 1})


def draft_context(k, w, b, state):
    """15 calls, up to 128 rows."""
    # draft.fuse.fc
    k.linear__w896x43008(state, b.draft_fuse_f_part, b.features, w.draft_fuse_fc)
    # draft.fuse.fc.all_gather
    yield ("all_gather", (b.draft_fuse_f,), (b.draft_fuse_f_part,), {"axis": 1})
    # draft.fuse.norm
    k.rms_norm__n7168(state, b.draft_fuse_ctx, b.draft_fuse_f, w.draft_fuse_norm)
    # D00.context_w2048.k_proj_v_proj
    k.linear__w256x7168(state, b.D00_context_w2048_k_proj_v_proj, b.draft_fuse_ctx, w.D00_context_w2048_k_proj_v_proj)
    # D00.context_w2048.norm_rope_append
    k.norm_rope_append__draft(state, b.D00_context_w2048_k0, b.D00_context_w2048_v, w.D00_attention_w2048_k_norm,
        layer=0)
    # D01.context_w2048.k_proj_v_proj
    k.linear__w256x7168(state, b.D01_context_w2048_k_proj_v_proj, b.draft_fuse_ctx, w.D01_context_w2048_k_proj_v_proj)
    # D01.context_w2048.norm_rope_append
    k.norm_rope_append__draft(state, b.D01_context_w2048_k0, b.D01_context_w2048_v, w.D01_attention_w2048_k_norm,
        layer=1)
    # D02.context_w2048.k_proj_v_proj
    k.linear__w256x7168(state, b.D02_context_w2048_k_proj_v_proj, b.draft_fuse_ctx, w.D02_context_w2048_k_proj_v_proj)
    # D02.context_w2048.norm_rope_append
    k.norm_rope_append__draft(state, b.D02_context_w2048_k0, b.D02_context_w2048_v, w.D02_attention_w2048_k_norm,
        layer=2)
    # D03.context_w2048.k_proj_v_proj
    k.linear__w256x7168(state, b.D03_context_w2048_k_proj_v_proj, b.draft_fuse_ctx, w.D03_context_w2048_k_proj_v_proj)
    # D03.context_w2048.norm_rope_append
    k.norm_rope_append__draft(state, b.D03_context_w2048_k0, b.D03_context_w2048_v, w.D03_attention_w2048_k_norm,
        layer=3)
    # D04.context_w2048.k_proj_v_proj
    k.linear__w256x7168(state, b.D04_context_w2048_k_proj_v_proj, b.draft_fuse_ctx, w.D04_context_w2048_k_proj_v_proj)
    # D04.context_w2048.norm_rope_append
    k.norm_rope_append__draft(state, b.D04_context_w2048_k0, b.D04_context_w2048_v, w.D04_attention_w2048_k_norm,
        layer=4)
    # D05.context_full.k_proj_v_proj
    k.linear__w256x7168(state, b.D05_context_full_k_proj_v_proj, b.draft_fuse_ctx, w.D05_context_full_k_proj_v_proj)
    # D05.context_full.norm_rope_append
    k.norm_rope_append__draft(state, b.D05_context_full_k0, b.D05_context_full_v, w.D05_attention_full_k_norm, layer=5)


def draft_block(k, w, b, state):
    """59 calls, up to 8 rows."""
    # draft.embed.tokens
    k.embedding__t20480(state, b.draft_embed_x_part, b.tokens, w.embed_tokens, first=state.first("rank", 20480))
    # draft.embed.tokens.all_reduce
    yield ("all_reduce", (b.draft_embed_x,), (b.draft_embed_x_part,), {})
    # D00.attention_w2048.norm_linear
    k.norm_linear__w1280x7168(state, b.D00_attention_w2048_q_proj_k_proj_v_proj, b.draft_embed_x,
        w.D00_attention_w2048_norm, w.D00_attention_w2048_q_proj_k_proj_v_proj)
    # D00.attention_w2048.q_rope.norm_rope
    k.norm_rope__draft_h8(state, b.D00_attention_w2048_q, b.D00_attention_w2048_q0, w.D00_attention_w2048_q_norm)
    # D00.attention_w2048.k_rope.norm_rope
    k.norm_rope__draft_h1(state, b.D00_attention_w2048_k, b.D00_attention_w2048_k0, w.D00_attention_w2048_k_norm)
    # D00.attention_w2048.attend
    k.block_attention__h8_t4352(state, b.D00_attention_w2048_o, b.D00_attention_w2048_q, b.D00_attention_w2048_k,
        b.D00_attention_w2048_v, layer=0)
    # D00.attention_w2048.o_proj
    k.linear__w7168x1024_m8(state, b.D00_attention_w2048_attn_part, b.D00_attention_w2048_o,
        w.D00_attention_w2048_o_proj)
    # D00.attention_w2048.o_proj.all_reduce
    yield ("all_reduce", (b.D00_attention_w2048_attn,), (b.D00_attention_w2048_attn_part,), {})
    # D00.mlp.add_norm_linear
    k.add_norm_linear__w4608x7168_m8(state, b.D00_attention_w2048_y, b.D00_mlp_gate_up, b.draft_embed_x,
        b.D00_attention_w2048_attn, w.D00_mlp_norm, w.D00_mlp_gate_up)
    # D00.mlp.swiglu_linear
    k.swiglu_linear__w7168x2304_m8(state, b.D00_mlp_m_part, b.D00_mlp_g, b.D00_mlp_u, w.D00_mlp_down)
    # D00.mlp.down.all_reduce
    yield ("all_reduce", (b.D00_mlp_m,), (b.D00_mlp_m_part,), {})
    # D01.attention_w2048.add_norm_linear
    k.add_norm_linear__w1280x7168(state, b.D00_mlp_y, b.D01_attention_w2048_q_proj_k_proj_v_proj,
        b.D00_attention_w2048_y, b.D00_mlp_m, w.D01_attention_w2048_norm, w.D01_attention_w2048_q_proj_k_proj_v_proj)
    # D01.attention_w2048.q_rope.norm_rope
    k.norm_rope__draft_h8(state, b.D01_attention_w2048_q, b.D01_attention_w2048_q0, w.D01_attention_w2048_q_norm)
    # D01.attention_w2048.k_rope.norm_rope
    k.norm_rope__draft_h1(state, b.D01_attention_w2048_k, b.D01_attention_w2048_k0, w.D01_attention_w2048_k_norm)
    # D01.attention_w2048.attend
    k.block_attention__h8_t4352(state, b.D01_attention_w2048_o, b.D01_attention_w2048_q, b.D01_attention_w2048_k,
        b.D01_attention_w2048_v, layer=1)
    # D01.attention_w2048.o_proj
    k.linear__w7168x1024_m8(state, b.D01_attention_w2048_attn_part, b.D01_attention_w2048_o,
        w.D01_attention_w2048_o_proj)
    # D01.attention_w2048.o_proj.all_reduce
    yield ("all_reduce", (b.D01_attention_w2048_attn,), (b.D01_attention_w2048_attn_part,), {})
    # D01.mlp.add_norm_linear
    k.add_norm_linear__w4608x7168_m8(state, b.D01_attention_w2048_y, b.D01_mlp_gate_up, b.D00_mlp_y,
        b.D01_attention_w2048_attn, w.D01_mlp_norm, w.D01_mlp_gate_up)
    # D01.mlp.swiglu_linear
    k.swiglu_linear__w7168x2304_m8(state, b.D01_mlp_m_part, b.D01_mlp_g, b.D01_mlp_u, w.D01_mlp_down)
    # D01.mlp.down.all_reduce
    yield ("all_reduce", (b.D01_mlp_m,), (b.D01_mlp_m_part,), {})
    # D02.attention_w2048.add_norm_linear
    k.add_norm_linear__w1280x7168(state, b.D01_mlp_y, b.D02_attention_w2048_q_proj_k_proj_v_proj,
        b.D01_attention_w2048_y, b.D01_mlp_m, w.D02_attention_w2048_norm, w.D02_attention_w2048_q_proj_k_proj_v_proj)
    # D02.attention_w2048.q_rope.norm_rope
    k.norm_rope__draft_h8(state, b.D02_attention_w2048_q, b.D02_attention_w2048_q0, w.D02_attention_w2048_q_norm)
    # D02.attention_w2048.k_rope.norm_rope
    k.norm_rope__draft_h1(state, b.D02_attention_w2048_k, b.D02_attention_w2048_k0, w.D02_attention_w2048_k_norm)
    # D02.attention_w2048.attend
    k.block_attention__h8_t4352(state, b.D02_attention_w2048_o, b.D02_attention_w2048_q, b.D02_attention_w2048_k,
        b.D02_attention_w2048_v, layer=2)
    # D02.attention_w2048.o_proj
    k.linear__w7168x1024_m8(state, b.D02_attention_w2048_attn_part, b.D02_attention_w2048_o,
        w.D02_attention_w2048_o_proj)
    # D02.attention_w2048.o_proj.all_reduce
    yield ("all_reduce", (b.D02_attention_w2048_attn,), (b.D02_attention_w2048_attn_part,), {})
    # D02.mlp.add_norm_linear
    k.add_norm_linear__w4608x7168_m8(state, b.D02_attention_w2048_y, b.D02_mlp_gate_up, b.D01_mlp_y,
        b.D02_attention_w2048_attn, w.D02_mlp_norm, w.D02_mlp_gate_up)
    # D02.mlp.swiglu_linear
    k.swiglu_linear__w7168x2304_m8(state, b.D02_mlp_m_part, b.D02_mlp_g, b.D02_mlp_u, w.D02_mlp_down)
    # D02.mlp.down.all_reduce
    yield ("all_reduce", (b.D02_mlp_m,), (b.D02_mlp_m_part,), {})
    # D03.attention_w2048.add_norm_linear
    k.add_norm_linear__w1280x7168(state, b.D02_mlp_y, b.D03_attention_w2048_q_proj_k_proj_v_proj,
        b.D02_attention_w2048_y, b.D02_mlp_m, w.D03_attention_w2048_norm, w.D03_attention_w2048_q_proj_k_proj_v_proj)
    # D03.attention_w2048.q_rope.norm_rope
    k.norm_rope__draft_h8(state, b.D03_attention_w2048_q, b.D03_attention_w2048_q0, w.D03_attention_w2048_q_norm)
    # D03.attention_w2048.k_rope.norm_rope
    k.norm_rope__draft_h1(state, b.D03_attention_w2048_k, b.D03_attention_w2048_k0, w.D03_attention_w2048_k_norm)
    # D03.attention_w2048.attend
    k.block_attention__h8_t4352(state, b.D03_attention_w2048_o, b.D03_attention_w2048_q, b.D03_attention_w2048_k,
        b.D03_attention_w2048_v, layer=3)
    # D03.attention_w2048.o_proj
    k.linear__w7168x1024_m8(state, b.D03_attention_w2048_attn_part, b.D03_attention_w2048_o,
        w.D03_attention_w2048_o_proj)
    # D03.attention_w2048.o_proj.all_reduce
    yield ("all_reduce", (b.D03_attention_w2048_attn,), (b.D03_attention_w2048_attn_part,), {})
    # D03.mlp.add_norm_linear
    k.add_norm_linear__w4608x7168_m8(state, b.D03_attention_w2048_y, b.D03_mlp_gate_up, b.D02_mlp_y,
        b.D03_attention_w2048_attn, w.D03_mlp_norm, w.D03_mlp_gate_up)
    # D03.mlp.swiglu_linear
    k.swiglu_linear__w7168x2304_m8(state, b.D03_mlp_m_part, b.D03_mlp_g, b.D03_mlp_u, w.D03_mlp_down)
    # D03.mlp.down.all_reduce
    yield ("all_reduce", (b.D03_mlp_m,), (b.D03_mlp_m_part,), {})
    # D04.attention_w2048.add_norm_linear
    k.add_norm_linear__w1280x7168(state, b.D03_mlp_y, b.D04_attention_w2048_q_proj_k_proj_v_proj,
        b.D03_attention_w2048_y, b.D03_mlp_m, w.D04_attention_w2048_norm, w.D04_attention_w2048_q_proj_k_proj_v_proj)
    # D04.attention_w2048.q_rope.norm_rope
    k.norm_rope__draft_h8(state, b.D04_attention_w2048_q, b.D04_attention_w2048_q0, w.D04_attention_w2048_q_norm)
    # D04.attention_w2048.k_rope.norm_rope
    k.norm_rope__draft_h1(state, b.D04_attention_w2048_k, b.D04_attention_w2048_k0, w.D04_attention_w2048_k_norm)
    # D04.attention_w2048.attend
    k.block_attention__h8_t4352(state, b.D04_attention_w2048_o, b.D04_attention_w2048_q, b.D04_attention_w2048_k,
        b.D04_attention_w2048_v, layer=4)
    # D04.attention_w2048.o_proj
    k.linear__w7168x1024_m8(state, b.D04_attention_w2048_attn_part, b.D04_attention_w2048_o,
        w.D04_attention_w2048_o_proj)
    # D04.attention_w2048.o_proj.all_reduce
    yield ("all_reduce", (b.D04_attention_w2048_attn,), (b.D04_attention_w2048_attn_part,), {})
    # D04.mlp.add_norm_linear
    k.add_norm_linear__w4608x7168_m8(state, b.D04_attention_w2048_y, b.D04_mlp_gate_up, b.D03_mlp_y,
        b.D04_attention_w2048_attn, w.D04_mlp_norm, w.D04_mlp_gate_up)
    # D04.mlp.swiglu_linear
    k.swiglu_linear__w7168x2304_m8(state, b.D04_mlp_m_part, b.D04_mlp_g, b.D04_mlp_u, w.D04_mlp_down)
    # D04.mlp.down.all_reduce
    yield ("all_reduce", (b.D04_mlp_m,), (b.D04_mlp_m_part,), {})
    # D05.attention_full.add_norm_linear
    k.add_norm_linear__w1280x7168(state, b.D04_mlp_y, b.D05_attention_full_q_proj_k_proj_v_proj,
        b.D04_attention_w2048_y, b.D04_mlp_m, w.D05_attention_full_norm, w.D05_attention_full_q_proj_k_proj_v_proj)
    # D05.attention_full.q_rope.norm_rope
    k.norm_rope__draft_h8(state, b.D05_attention_full_q, b.D05_attention_full_q0, w.D05_attention_full_q_norm)
    # D05.attention_full.k_rope.norm_rope
    k.norm_rope__draft_h1(state, b.D05_attention_full_k, b.D05_attention_full_k0, w.D05_attention_full_k_norm)
    # D05.attention_full.attend
    k.block_attention__h8_t65664(state, b.D05_attention_full_o, b.D05_attention_full_q, b.D05_attention_full_k,
        b.D05_attention_full_v, layer=5)
    # D05.attention_full.o_proj
    k.linear__w7168x1024_m8(state, b.D05_attention_full_attn_part, b.D05_attention_full_o, w.D05_attention_full_o_proj)
    # D05.attention_full.o_proj.all_reduce
    yield ("all_reduce", (b.D05_attention_full_attn,), (b.D05_attention_full_attn_part,), {})
    # D05.mlp.add_norm_linear
    k.add_norm_linear__w4608x7168_m8(state, b.D05_attention_full_y, b.D05_mlp_gate_up, b.D04_mlp_y,
        b.D05_attention_full_attn, w.D05_mlp_norm, w.D05_mlp_gate_up)
    # D05.mlp.swiglu_linear
    k.swiglu_linear__w7168x2304_m8(state, b.D05_mlp_m_part, b.D05_mlp_g, b.D05_mlp_u, w.D05_mlp_down)
    # D05.mlp.down.all_reduce
    yield ("all_reduce", (b.D05_mlp_m,), (b.D05_mlp_m_part,), {})
    # D05.mlp.residual
    k.add__n7168(state, b.D05_mlp_y, b.D05_attention_full_y, b.D05_mlp_m)
    # draft.head.take_norm_linear
    k.take_norm_linear__w20480x7168_m8(state, b.logits_part, b.D05_mlp_y, w.draft_head_norm, w.head_lm_head)
    # draft.head.lm_head.all_gather
    yield ("all_gather", (b.logits,), (b.logits_part,), {"axis": 1})
