# step program: engine tiny-k2-h200-x1, bfloat16; template step/step.py.j2
"""tiny-k2 on h200-x1: 1 rank.

`k`: kernels of the backend, `w`: weights of one rank, `b`: buffers of one rank for the rows of this step, `state`:
positions, caches and tree of this step. A collective is yielded as (name, outs, ins, params); all ranks meet there.
"""


def target(k, w, b, state):
    """41 calls, up to 128 rows."""
    # embed.tokens
    k.embedding__t4096(state, b.embed_x, b.tokens, w.embed_tokens, first=0)
    # L00.attention.norm_linear
    k.norm_linear__w272x256(state, b.L00_attention_q_a_kv_a, b.embed_x, w.L00_attention_norm, w.L00_attention_q_a_kv_a)
    # L00.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w384x128(state, b.L00_attention_q_rot, b.L00_attention_o_q_c, b.L00_attention_qa,
        w.L00_attention_q_norm, w.L00_attention_q_b, w.L00_attention_mla_w_uk)
    # L00.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L00_attention_latent, b.L00_attention_k_pe, w.L00_attention_kv_norm, layer=0)
    # L00.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L00_attention_o, b.L00_attention_o_q_c, b.L00_attention_q_rot,
        w.L00_attention_mla_w_uv, layer=0)
    # L00.attention.o_proj
    k.linear__w256x256_m128(state, b.L00_attention_attn, b.L00_attention_o, w.L00_attention_o_proj)
    # L00.mlp.add_norm_linear
    k.add_norm_linear__w1024x256(state, b.L00_attention_y, b.L00_mlp_gate_up, b.embed_x, b.L00_attention_attn,
        w.L00_mlp_norm, w.L00_mlp_gate_up)
    # L00.mlp.swiglu_linear
    k.swiglu_linear__w256x512(state, b.L00_mlp_m, b.L00_mlp_g, b.L00_mlp_u, w.L00_mlp_down)
    # L01.attention.add_norm_linear
    k.add_norm_linear__w272x256(state, b.L00_mlp_y, b.L01_attention_q_a_kv_a, b.L00_attention_y, b.L00_mlp_m,
        w.L01_attention_norm, w.L01_attention_q_a_kv_a)
    # L01.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w384x128(state, b.L01_attention_q_rot, b.L01_attention_o_q_c, b.L01_attention_qa,
        w.L01_attention_q_norm, w.L01_attention_q_b, w.L01_attention_mla_w_uk)
    # L01.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L01_attention_latent, b.L01_attention_k_pe, w.L01_attention_kv_norm, layer=1)
    # L01.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L01_attention_o, b.L01_attention_o_q_c, b.L01_attention_q_rot,
        w.L01_attention_mla_w_uv, layer=1)
    # L01.attention.o_proj
    k.linear__w256x256_m128(state, b.L01_attention_attn, b.L01_attention_o, w.L01_attention_o_proj)
    # L01.moe.add_norm_router
    k.add_norm_router__n16(state, b.L01_attention_y, b.L01_moe_h, b.L01_moe_ids, b.L01_moe_w, b.L00_mlp_y,
        b.L01_attention_attn, w.L01_moe_norm, w.L01_moe_router, w.L01_moe_router_bias)
    # L01.moe.experts_shared
    k.experts_shared__e16(state, b.L01_moe_m, b.L01_moe_h, b.L01_moe_ids, b.L01_moe_w, w.L01_moe_experts_gate_up,
        w.L01_moe_experts_down, w.L01_moe_shared_gate_shared_up, w.L01_moe_shared_down, first=0)
    # L02.attention.add_norm_linear
    k.add_norm_linear__w272x256(state, b.L01_moe_y, b.L02_attention_q_a_kv_a, b.L01_attention_y, b.L01_moe_m,
        w.L02_attention_norm, w.L02_attention_q_a_kv_a)
    # L01.tap
    k.tap__n256(state, b.features, b.L01_moe_y, index=0)
    # L02.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w384x128(state, b.L02_attention_q_rot, b.L02_attention_o_q_c, b.L02_attention_qa,
        w.L02_attention_q_norm, w.L02_attention_q_b, w.L02_attention_mla_w_uk)
    # L02.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L02_attention_latent, b.L02_attention_k_pe, w.L02_attention_kv_norm, layer=2)
    # L02.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L02_attention_o, b.L02_attention_o_q_c, b.L02_attention_q_rot,
        w.L02_attention_mla_w_uv, layer=2)
    # L02.attention.o_proj
    k.linear__w256x256_m128(state, b.L02_attention_attn, b.L02_attention_o, w.L02_attention_o_proj)
    # L02.moe.add_norm_router
    k.add_norm_router__n16(state, b.L02_attention_y, b.L02_moe_h, b.L02_moe_ids, b.L02_moe_w, b.L01_moe_y,
        b.L02_attention_attn, w.L02_moe_norm, w.L02_moe_router, w.L02_moe_router_bias)
    # L02.moe.experts_shared
    k.experts_shared__e16(state, b.L02_moe_m, b.L02_moe_h, b.L02_moe_ids, b.L02_moe_w, w.L02_moe_experts_gate_up,
        w.L02_moe_experts_down, w.L02_moe_shared_gate_shared_up, w.L02_moe_shared_down, first=0)
    # L03.attention.add_norm_linear
    k.add_norm_linear__w272x256(state, b.L02_moe_y, b.L03_attention_q_a_kv_a, b.L02_attention_y, b.L02_moe_m,
        w.L03_attention_norm, w.L03_attention_q_a_kv_a)
    # L02.tap
    k.tap__n256(state, b.features, b.L02_moe_y, index=1)
    # L03.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w384x128(state, b.L03_attention_q_rot, b.L03_attention_o_q_c, b.L03_attention_qa,
        w.L03_attention_q_norm, w.L03_attention_q_b, w.L03_attention_mla_w_uk)
    # L03.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L03_attention_latent, b.L03_attention_k_pe, w.L03_attention_kv_norm, layer=3)
    # L03.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L03_attention_o, b.L03_attention_o_q_c, b.L03_attention_q_rot,
        w.L03_attention_mla_w_uv, layer=3)
    # L03.attention.o_proj
    k.linear__w256x256_m128(state, b.L03_attention_attn, b.L03_attention_o, w.L03_attention_o_proj)
    # L03.moe.add_norm_router
    k.add_norm_router__n16(state, b.L03_attention_y, b.L03_moe_h, b.L03_moe_ids, b.L03_moe_w, b.L02_moe_y,
        b.L03_attention_attn, w.L03_moe_norm, w.L03_moe_router, w.L03_moe_router_bias)
    # L03.moe.experts_shared
    k.experts_shared__e16(state, b.L03_moe_m, b.L03_moe_h, b.L03_moe_ids, b.L03_moe_w, w.L03_moe_experts_gate_up,
        w.L03_moe_experts_down, w.L03_moe_shared_gate_shared_up, w.L03_moe_shared_down, first=0)
    # L04.attention.add_norm_linear
    k.add_norm_linear__w272x256(state, b.L03_moe_y, b.L04_attention_q_a_kv_a, b.L03_attention_y, b.L03_moe_m,
        w.L04_attention_norm, w.L04_attention_q_a_kv_a)
    # L03.tap
    k.tap__n256(state, b.features, b.L03_moe_y, index=2)
    # L04.attention.q_b_absorb_rope
    k.q_b_absorb_rope__w384x128(state, b.L04_attention_q_rot, b.L04_attention_o_q_c, b.L04_attention_qa,
        w.L04_attention_q_norm, w.L04_attention_q_b, w.L04_attention_mla_w_uk)
    # L04.attention.kv_norm_rope_append
    k.kv_norm_rope_append__rope(state, b.L04_attention_latent, b.L04_attention_k_pe, w.L04_attention_kv_norm, layer=4)
    # L04.attention.latent_attention_v_up
    k.latent_attention_v_up__h8(state, b.L04_attention_o, b.L04_attention_o_q_c, b.L04_attention_q_rot,
        w.L04_attention_mla_w_uv, layer=4)
    # L04.attention.o_proj
    k.linear__w256x256_m128(state, b.L04_attention_attn, b.L04_attention_o, w.L04_attention_o_proj)
    # L04.moe.add_norm_router
    k.add_norm_router__n16(state, b.L04_attention_y, b.L04_moe_h, b.L04_moe_ids, b.L04_moe_w, b.L03_moe_y,
        b.L04_attention_attn, w.L04_moe_norm, w.L04_moe_router, w.L04_moe_router_bias)
    # L04.moe.experts_shared
    k.experts_shared__e16(state, b.L04_moe_m, b.L04_moe_h, b.L04_moe_ids, b.L04_moe_w, w.L04_moe_experts_gate_up,
        w.L04_moe_experts_down, w.L04_moe_shared_gate_shared_up, w.L04_moe_shared_down, first=0)
    # L04.moe.residual
    k.add__n256(state, b.L04_moe_y, b.L04_attention_y, b.L04_moe_m)
    # head.take_norm_linear
    k.take_norm_linear__w4096x256_m128(state, b.logits, b.L04_moe_y, w.head_norm, w.head_lm_head)
    return
    yield  # no collectives: still a generator, like the programs of many ranks


def draft_context(k, w, b, state):
    """8 calls, up to 128 rows."""
    # draft.fuse.fc
    k.linear__w256x768(state, b.draft_fuse_f, b.features, w.draft_fuse_fc)
    # draft.fuse.norm
    k.rms_norm__n256(state, b.draft_fuse_ctx, b.draft_fuse_f, w.draft_fuse_norm)
    # D00.context_full.k_proj_v_proj
    k.linear__w256x256_m128(state, b.D00_context_full_k_proj_v_proj, b.draft_fuse_ctx, w.D00_context_full_k_proj_v_proj)
    # D00.context_full.norm_rope_append
    k.norm_rope_append__draft(state, b.D00_context_full_k0, b.D00_context_full_v, w.D00_attention_full_k_norm, layer=0)
    # D01.context_full.k_proj_v_proj
    k.linear__w256x256_m128(state, b.D01_context_full_k_proj_v_proj, b.draft_fuse_ctx, w.D01_context_full_k_proj_v_proj)
    # D01.context_full.norm_rope_append
    k.norm_rope_append__draft(state, b.D01_context_full_k0, b.D01_context_full_v, w.D01_attention_full_k_norm, layer=1)
    # D02.context_full.k_proj_v_proj
    k.linear__w256x256_m128(state, b.D02_context_full_k_proj_v_proj, b.draft_fuse_ctx, w.D02_context_full_k_proj_v_proj)
    # D02.context_full.norm_rope_append
    k.norm_rope_append__draft(state, b.D02_context_full_k0, b.D02_context_full_v, w.D02_attention_full_k_norm, layer=2)
    return
    yield  # no collectives: still a generator, like the programs of many ranks


def draft_block(k, w, b, state):
    """24 calls, up to 64 rows."""
    # draft.embed.tokens
    k.embedding__t4096(state, b.draft_embed_x, b.tokens, w.embed_tokens, first=0)
    # D00.attention_full.norm_linear
    k.norm_linear__w512x256(state, b.D00_attention_full_q_proj_k_proj_v_proj, b.draft_embed_x,
        w.D00_attention_full_norm, w.D00_attention_full_q_proj_k_proj_v_proj)
    # D00.attention_full.q_rope.norm_rope
    k.norm_rope__draft_h8(state, b.D00_attention_full_q, b.D00_attention_full_q0, w.D00_attention_full_q_norm)
    # D00.attention_full.k_rope.norm_rope
    k.norm_rope__draft_h4(state, b.D00_attention_full_k, b.D00_attention_full_k0, w.D00_attention_full_k_norm)
    # D00.attention_full.attend
    k.block_attention__h8(state, b.D00_attention_full_o, b.D00_attention_full_q, b.D00_attention_full_k,
        b.D00_attention_full_v, layer=0)
    # D00.attention_full.o_proj
    k.linear__w256x256_m64(state, b.D00_attention_full_attn, b.D00_attention_full_o, w.D00_attention_full_o_proj)
    # D00.mlp.add_norm_linear
    k.add_norm_linear__w1472x256(state, b.D00_attention_full_y, b.D00_mlp_gate_up, b.draft_embed_x,
        b.D00_attention_full_attn, w.D00_mlp_norm, w.D00_mlp_gate_up)
    # D00.mlp.swiglu_linear
    k.swiglu_linear__w256x736(state, b.D00_mlp_m, b.D00_mlp_g, b.D00_mlp_u, w.D00_mlp_down)
    # D01.attention_full.add_norm_linear
    k.add_norm_linear__w512x256(state, b.D00_mlp_y, b.D01_attention_full_q_proj_k_proj_v_proj, b.D00_attention_full_y,
        b.D00_mlp_m, w.D01_attention_full_norm, w.D01_attention_full_q_proj_k_proj_v_proj)
    # D01.attention_full.q_rope.norm_rope
    k.norm_rope__draft_h8(state, b.D01_attention_full_q, b.D01_attention_full_q0, w.D01_attention_full_q_norm)
    # D01.attention_full.k_rope.norm_rope
    k.norm_rope__draft_h4(state, b.D01_attention_full_k, b.D01_attention_full_k0, w.D01_attention_full_k_norm)
    # D01.attention_full.attend
    k.block_attention__h8(state, b.D01_attention_full_o, b.D01_attention_full_q, b.D01_attention_full_k,
        b.D01_attention_full_v, layer=1)
    # D01.attention_full.o_proj
    k.linear__w256x256_m64(state, b.D01_attention_full_attn, b.D01_attention_full_o, w.D01_attention_full_o_proj)
    # D01.mlp.add_norm_linear
    k.add_norm_linear__w1472x256(state, b.D01_attention_full_y, b.D01_mlp_gate_up, b.D00_mlp_y,
        b.D01_attention_full_attn, w.D01_mlp_norm, w.D01_mlp_gate_up)
    # D01.mlp.swiglu_linear
    k.swiglu_linear__w256x736(state, b.D01_mlp_m, b.D01_mlp_g, b.D01_mlp_u, w.D01_mlp_down)
    # D02.attention_full.add_norm_linear
    k.add_norm_linear__w512x256(state, b.D01_mlp_y, b.D02_attention_full_q_proj_k_proj_v_proj, b.D01_attention_full_y,
        b.D01_mlp_m, w.D02_attention_full_norm, w.D02_attention_full_q_proj_k_proj_v_proj)
    # D02.attention_full.q_rope.norm_rope
    k.norm_rope__draft_h8(state, b.D02_attention_full_q, b.D02_attention_full_q0, w.D02_attention_full_q_norm)
    # D02.attention_full.k_rope.norm_rope
    k.norm_rope__draft_h4(state, b.D02_attention_full_k, b.D02_attention_full_k0, w.D02_attention_full_k_norm)
    # D02.attention_full.attend
    k.block_attention__h8(state, b.D02_attention_full_o, b.D02_attention_full_q, b.D02_attention_full_k,
        b.D02_attention_full_v, layer=2)
    # D02.attention_full.o_proj
    k.linear__w256x256_m64(state, b.D02_attention_full_attn, b.D02_attention_full_o, w.D02_attention_full_o_proj)
    # D02.mlp.add_norm_linear
    k.add_norm_linear__w1472x256(state, b.D02_attention_full_y, b.D02_mlp_gate_up, b.D01_mlp_y,
        b.D02_attention_full_attn, w.D02_mlp_norm, w.D02_mlp_gate_up)
    # D02.mlp.swiglu_linear
    k.swiglu_linear__w256x736(state, b.D02_mlp_m, b.D02_mlp_g, b.D02_mlp_u, w.D02_mlp_down)
    # D02.mlp.residual
    k.add__n256(state, b.D02_mlp_y, b.D02_attention_full_y, b.D02_mlp_m)
    # draft.head.take_norm_linear
    k.take_norm_linear__w4096x256_m64(state, b.logits, b.D02_mlp_y, w.draft_head_norm, w.head_lm_head)
    return
    yield  # no collectives: still a generator, like the programs of many ranks
