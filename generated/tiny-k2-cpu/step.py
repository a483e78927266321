# step program: engine tiny-k2-cpu, float32; template step/step.py.j2
"""tiny-k2 on cpu: 1 rank.

`k`: kernels of the backend, `w`: weights of one rank, `b`: buffers of one rank for the rows of this step, `state`:
positions, caches and tree of this step. A collective is yielded as (name, outs, ins, params); all ranks meet there.
"""


def target(k, w, b, state):
    """131 calls, up to 64 rows."""
    # embed.tokens
    k.embedding(b.embed_x, b.tokens, w.embed_tokens, first=0)
    # L00.attention.norm_linear
    k.rms_norm(b.L00_attention_h, b.embed_x, w.L00_attention_norm, eps=1e-05)
    k.linear(b.L00_attention_q_a_kv_a, b.L00_attention_h, w.L00_attention_q_a_kv_a)
    # L00.attention.q_b_absorb_rope
    k.rms_norm(b.L00_attention_qn, b.L00_attention_qa, w.L00_attention_q_norm, eps=1e-05)
    k.linear(b.L00_attention_q, b.L00_attention_qn, w.L00_attention_q_b)
    k.rope(state, b.L00_attention_q_rot, b.L00_attention_q_pe, table="rope")
    k.q_absorb(b.L00_attention_o_q_c, b.L00_attention_q_nope, w.L00_attention_mla_w_uk)
    # L00.attention.kv_norm_rope_append
    k.rms_norm(b.L00_attention_c, b.L00_attention_latent, w.L00_attention_kv_norm, eps=1e-05)
    k.rope(state, b.L00_attention_k_rot, b.L00_attention_k_pe, table="rope")
    k.latent_append(state, b.L00_attention_c, b.L00_attention_k_rot, layer=0)
    # L00.attention.latent_attention_v_up
    k.latent_attention(state, b.L00_attention_o_o_c, b.L00_attention_o_q_c, b.L00_attention_q_rot, layer=0,
        scale=0.14433756729740643)
    k.v_up(b.L00_attention_o, b.L00_attention_o_o_c, w.L00_attention_mla_w_uv)
    # L00.attention.o_proj
    k.linear(b.L00_attention_attn, b.L00_attention_o, w.L00_attention_o_proj)
    # L00.mlp.add_norm_linear
    k.add(b.L00_attention_y, b.embed_x, b.L00_attention_attn)
    k.rms_norm(b.L00_mlp_h, b.L00_attention_y, w.L00_mlp_norm, eps=1e-05)
    k.linear(b.L00_mlp_gate_up, b.L00_mlp_h, w.L00_mlp_gate_up)
    # L00.mlp.swiglu_linear
    k.swiglu(b.L00_mlp_a, b.L00_mlp_g, b.L00_mlp_u)
    k.linear(b.L00_mlp_m, b.L00_mlp_a, w.L00_mlp_down)
    # L01.attention.add_norm_linear
    k.add(b.L00_mlp_y, b.L00_attention_y, b.L00_mlp_m)
    k.rms_norm(b.L01_attention_h, b.L00_mlp_y, w.L01_attention_norm, eps=1e-05)
    k.linear(b.L01_attention_q_a_kv_a, b.L01_attention_h, w.L01_attention_q_a_kv_a)
    # L01.attention.q_b_absorb_rope
    k.rms_norm(b.L01_attention_qn, b.L01_attention_qa, w.L01_attention_q_norm, eps=1e-05)
    k.linear(b.L01_attention_q, b.L01_attention_qn, w.L01_attention_q_b)
    k.rope(state, b.L01_attention_q_rot, b.L01_attention_q_pe, table="rope")
    k.q_absorb(b.L01_attention_o_q_c, b.L01_attention_q_nope, w.L01_attention_mla_w_uk)
    # L01.attention.kv_norm_rope_append
    k.rms_norm(b.L01_attention_c, b.L01_attention_latent, w.L01_attention_kv_norm, eps=1e-05)
    k.rope(state, b.L01_attention_k_rot, b.L01_attention_k_pe, table="rope")
    k.latent_append(state, b.L01_attention_c, b.L01_attention_k_rot, layer=1)
    # L01.attention.latent_attention_v_up
    k.latent_attention(state, b.L01_attention_o_o_c, b.L01_attention_o_q_c, b.L01_attention_q_rot, layer=1,
        scale=0.14433756729740643)
    k.v_up(b.L01_attention_o, b.L01_attention_o_o_c, w.L01_attention_mla_w_uv)
    # L01.attention.o_proj
    k.linear(b.L01_attention_attn, b.L01_attention_o, w.L01_attention_o_proj)
    # L01.moe.add_norm_router
    k.add(b.L01_attention_y, b.L00_mlp_y, b.L01_attention_attn)
    k.rms_norm(b.L01_moe_h, b.L01_attention_y, w.L01_moe_norm, eps=1e-05)
    k.router(b.L01_moe_ids, b.L01_moe_w, b.L01_moe_h, w.L01_moe_router, w.L01_moe_router_bias, top_k=4, groups=1,
        top_groups=1, score="sigmoid", normalize=True, scale=2.0)
    # L01.moe.experts_shared
    k.experts(b.L01_moe_routed, b.L01_moe_h, b.L01_moe_ids, b.L01_moe_w, w.L01_moe_experts_gate_up,
        w.L01_moe_experts_down, first=0)
    k.linear(b.L01_moe_shared_gate_shared_up, b.L01_moe_h, w.L01_moe_shared_gate_shared_up)
    k.swiglu(b.L01_moe_shared_a, b.L01_moe_shared_g, b.L01_moe_shared_u)
    k.linear(b.L01_moe_shared, b.L01_moe_shared_a, w.L01_moe_shared_down)
    k.add(b.L01_moe_m, b.L01_moe_routed, b.L01_moe_shared)
    # L02.attention.add_norm_linear
    k.add(b.L01_moe_y, b.L01_attention_y, b.L01_moe_m)
    k.rms_norm(b.L02_attention_h, b.L01_moe_y, w.L02_attention_norm, eps=1e-05)
    k.linear(b.L02_attention_q_a_kv_a, b.L02_attention_h, w.L02_attention_q_a_kv_a)
    # L01.tap
    k.tap(b.features, b.L01_moe_y, index=0)
    # L02.attention.q_b_absorb_rope
    k.rms_norm(b.L02_attention_qn, b.L02_attention_qa, w.L02_attention_q_norm, eps=1e-05)
    k.linear(b.L02_attention_q, b.L02_attention_qn, w.L02_attention_q_b)
    k.rope(state, b.L02_attention_q_rot, b.L02_attention_q_pe, table="rope")
    k.q_absorb(b.L02_attention_o_q_c, b.L02_attention_q_nope, w.L02_attention_mla_w_uk)
    # L02.attention.kv_norm_rope_append
    k.rms_norm(b.L02_attention_c, b.L02_attention_latent, w.L02_attention_kv_norm, eps=1e-05)
    k.rope(state, b.L02_attention_k_rot, b.L02_attention_k_pe, table="rope")
    k.latent_append(state, b.L02_attention_c, b.L02_attention_k_rot, layer=2)
    # L02.attention.latent_attention_v_up
    k.latent_attention(state, b.L02_attention_o_o_c, b.L02_attention_o_q_c, b.L02_attention_q_rot, layer=2,
        scale=0.14433756729740643)
    k.v_up(b.L02_attention_o, b.L02_attention_o_o_c, w.L02_attention_mla_w_uv)
    # L02.attention.o_proj
    k.linear(b.L02_attention_attn, b.L02_attention_o, w.L02_attention_o_proj)
    # L02.moe.add_norm_router
    k.add(b.L02_attention_y, b.L01_moe_y, b.L02_attention_attn)
    k.rms_norm(b.L02_moe_h, b.L02_attention_y, w.L02_moe_norm, eps=1e-05)
    k.router(b.L02_moe_ids, b.L02_moe_w, b.L02_moe_h, w.L02_moe_router, w.L02_moe_router_bias, top_k=4, groups=1,
        top_groups=1, score="sigmoid", normalize=True, scale=2.0)
    # L02.moe.experts_shared
    k.experts(b.L02_moe_routed, b.L02_moe_h, b.L02_moe_ids, b.L02_moe_w, w.L02_moe_experts_gate_up,
        w.L02_moe_experts_down, first=0)
    k.linear(b.L02_moe_shared_gate_shared_up, b.L02_moe_h, w.L02_moe_shared_gate_shared_up)
    k.swiglu(b.L02_moe_shared_a, b.L02_moe_shared_g, b.L02_moe_shared_u)
    k.linear(b.L02_moe_shared, b.L02_moe_shared_a, w.L02_moe_shared_down)
    k.add(b.L02_moe_m, b.L02_moe_routed, b.L02_moe_shared)
    # L03.attention.add_norm_linear
    k.add(b.L02_moe_y, b.L02_attention_y, b.L02_moe_m)
    k.rms_norm(b.L03_attention_h, b.L02_moe_y, w.L03_attention_norm, eps=1e-05)
    k.linear(b.L03_attention_q_a_kv_a, b.L03_attention_h, w.L03_attention_q_a_kv_a)
    # L02.tap
    k.tap(b.features, b.L02_moe_y, index=1)
    # L03.attention.q_b_absorb_rope
    k.rms_norm(b.L03_attention_qn, b.L03_attention_qa, w.L03_attention_q_norm, eps=1e-05)
    k.linear(b.L03_attention_q, b.L03_attention_qn, w.L03_attention_q_b)
    k.rope(state, b.L03_attention_q_rot, b.L03_attention_q_pe, table="rope")
    k.q_absorb(b.L03_attention_o_q_c, b.L03_attention_q_nope, w.L03_attention_mla_w_uk)
    # L03.attention.kv_norm_rope_append
    k.rms_norm(b.L03_attention_c, b.L03_attention_latent, w.L03_attention_kv_norm, eps=1e-05)
    k.rope(state, b.L03_attention_k_rot, b.L03_attention_k_pe, table="rope")
    k.latent_append(state, b.L03_attention_c, b.L03_attention_k_rot, layer=3)
    # L03.attention.latent_attention_v_up
    k.latent_attention(state, b.L03_attention_o_o_c, b.L03_attention_o_q_c, b.L03_attention_q_rot, layer=3,
        scale=0.14433756729740643)
    k.v_up(b.L03_attention_o, b.L03_attention_o_o_c, w.L03_attention_mla_w_uv)
    # L03.attention.o_proj
    k.linear(b.L03_attention_attn, b.L03_attention_o, w.L03_attention_o_proj)
    # L03.moe.add_norm_router
    k.add(b.L03_attention_y, b.L02_moe_y, b.L03_attention_attn)
    k.rms_norm(b.L03_moe_h, b.L03_attention_y, w.L03_moe_norm, eps=1e-05)
    k.router(b.L03_moe_ids, b.L03_moe_w, b.L03_moe_h, w.L03_moe_router, w.L03_moe_router_bias, top_k=4, groups=1,
        top_groups=1, score="sigmoid", normalize=True, scale=2.0)
    # L03.moe.experts_shared
    k.experts(b.L03_moe_routed, b.L03_moe_h, b.L03_moe_ids, b.L03_moe_w, w.L03_moe_experts_gate_up,
        w.L03_moe_experts_down, first=0)
    k.linear(b.L03_moe_shared_gate_shared_up, b.L03_moe_h, w.L03_moe_shared_gate_shared_up)
    k.swiglu(b.L03_moe_shared_a, b.L03_moe_shared_g, b.L03_moe_shared_u)
    k.linear(b.L03_moe_shared, b.L03_moe_shared_a, w.L03_moe_shared_down)
    k.add(b.L03_moe_m, b.L03_moe_routed, b.L03_moe_shared)
    # L04.attention.add_norm_linear
    k.add(b.L03_moe_y, b.L03_attention_y, b.L03_moe_m)
    k.rms_norm(b.L04_attention_h, b.L03_moe_y, w.L04_attention_norm, eps=1e-05)
    k.linear(b.L04_attention_q_a_kv_a, b.L04_attention_h, w.L04_attention_q_a_kv_a)
    # L03.tap
    k.tap(b.features, b.L03_moe_y, index=2)
    # L04.attention.q_b_absorb_rope
    k.rms_norm(b.L04_attention_qn, b.L04_attention_qa, w.L04_attention_q_norm, eps=1e-05)
    k.linear(b.L04_attention_q, b.L04_attention_qn, w.L04_attention_q_b)
    k.rope(state, b.L04_attention_q_rot, b.L04_attention_q_pe, table="rope")
    k.q_absorb(b.L04_attention_o_q_c, b.L04_attention_q_nope, w.L04_attention_mla_w_uk)
    # L04.attention.kv_norm_rope_append
    k.rms_norm(b.L04_attention_c, b.L04_attention_latent, w.L04_attention_kv_norm, eps=1e-05)
    k.rope(state, b.L04_attention_k_rot, b.L04_attention_k_pe, table="rope")
    k.latent_append(state, b.L04_attention_c, b.L04_attention_k_rot, layer=4)
    # L04.attention.latent_attention_v_up
    k.latent_attention(state, b.L04_attention_o_o_c, b.L04_attention_o_q_c, b.L04_attention_q_rot, layer=4,
        scale=0.14433756729740643)
    k.v_up(b.L04_attention_o, b.L04_attention_o_o_c, w.L04_attention_mla_w_uv)
    # L04.attention.o_proj
    k.linear(b.L04_attention_attn, b.L04_attention_o, w.L04_attention_o_proj)
    # L04.moe.add_norm_router
    k.add(b.L04_attention_y, b.L03_moe_y, b.L04_attention_attn)
    k.rms_norm(b.L04_moe_h, b.L04_attention_y, w.L04_moe_norm, eps=1e-05)
    k.router(b.L04_moe_ids, b.L04_moe_w, b.L04_moe_h, w.L04_moe_router, w.L04_moe_router_bias, top_k=4, groups=1,
        top_groups=1, score="sigmoid", normalize=True, scale=2.0)
    # L04.moe.experts_shared
    k.experts(b.L04_moe_routed, b.L04_moe_h, b.L04_moe_ids, b.L04_moe_w, w.L04_moe_experts_gate_up,
        w.L04_moe_experts_down, first=0)
    k.linear(b.L04_moe_shared_gate_shared_up, b.L04_moe_h, w.L04_moe_shared_gate_shared_up)
    k.swiglu(b.L04_moe_shared_a, b.L04_moe_shared_g, b.L04_moe_shared_u)
    k.linear(b.L04_moe_shared, b.L04_moe_shared_a, w.L04_moe_shared_down)
    k.add(b.L04_moe_m, b.L04_moe_routed, b.L04_moe_shared)
    # L05.attention.add_norm_linear
    k.add(b.L04_moe_y, b.L04_attention_y, b.L04_moe_m)
    k.rms_norm(b.L05_attention_h, b.L04_moe_y, w.L05_attention_norm, eps=1e-05)
    k.linear(b.L05_attention_q_a_kv_a, b.L05_attention_h, w.L05_attention_q_a_kv_a)
    # L04.tap
    k.tap(b.features, b.L04_moe_y, index=3)
    # L05.attention.q_b_absorb_rope
    k.rms_norm(b.L05_attention_qn, b.L05_attention_qa, w.L05_attention_q_norm, eps=1e-05)
    k.linear(b.L05_attention_q, b.L05_attention_qn, w.L05_attention_q_b)
    k.rope(state, b.L05_attention_q_rot, b.L05_attention_q_pe, table="rope")
    k.q_absorb(b.L05_attention_o_q_c, b.L05_attention_q_nope, w.L05_attention_mla_w_uk)
    # L05.attention.kv_norm_rope_append
    k.rms_norm(b.L05_attention_c, b.L05_attention_latent, w.L05_attention_kv_norm, eps=1e-05)
    k.rope(state, b.L05_attention_k_rot, b.L05_attention_k_pe, table="rope")
    k.latent_append(state, b.L05_attention_c, b.L05_attention_k_rot, layer=5)
    # L05.attention.latent_attention_v_up
    k.latent_attention(state, b.L05_attention_o_o_c, b.L05_attention_o_q_c, b.L05_attention_q_rot, layer=5,
        scale=0.14433756729740643)
    k.v_up(b.L05_attention_o, b.L05_attention_o_o_c, w.L05_attention_mla_w_uv)
    # L05.attention.o_proj
    k.linear(b.L05_attention_attn, b.L05_attention_o, w.L05_attention_o_proj)
    # L05.moe.add_norm_router
    k.add(b.L05_attention_y, b.L04_moe_y, b.L05_attention_attn)
    k.rms_norm(b.L05_moe_h, b.L05_attention_y, w.L05_moe_norm, eps=1e-05)
    k.router(b.L05_moe_ids, b.L05_moe_w, b.L05_moe_h, w.L05_moe_router, w.L05_moe_router_bias, top_k=4, groups=1,
        top_groups=1, score="sigmoid", normalize=True, scale=2.0)
    # L05.moe.experts_shared
    k.experts(b.L05_moe_routed, b.L05_moe_h, b.L05_moe_ids, b.L05_moe_w, w.L05_moe_experts_gate_up,
        w.L05_moe_experts_down, first=0)
    k.linear(b.L05_moe_shared_gate_shared_up, b.L05_moe_h, w.L05_moe_shared_gate_shared_up)
    k.swiglu(b.L05_moe_shared_a, b.L05_moe_shared_g, b.L05_moe_shared_u)
    k.linear(b.L05_moe_shared, b.L05_moe_shared_a, w.L05_moe_shared_down)
    k.add(b.L05_moe_m, b.L05_moe_routed, b.L05_moe_shared)
    # L05.moe.residual
    k.add(b.L05_moe_y, b.L05_attention_y, b.L05_moe_m)
    # head.take_norm_linear
    k.take_rows(state, b.head_rows, b.L05_moe_y)
    k.rms_norm(b.head_h, b.head_rows, w.head_norm, eps=1e-05)
    k.linear(b.logits, b.head_h, w.head_lm_head)
    return
    yield  # no collectives: still a generator, like the programs of many ranks


def draft_context(k, w, b, state):
    """14 calls, up to 64 rows."""
    # draft.fuse.fc
    k.linear(b.draft_fuse_f, b.features, w.draft_fuse_fc)
    # draft.fuse.norm
    k.rms_norm(b.draft_fuse_ctx, b.draft_fuse_f, w.draft_fuse_norm, eps=1e-05)
    # D00.context_full.k_proj_v_proj
    k.linear(b.D00_context_full_k_proj_v_proj, b.draft_fuse_ctx, w.D00_context_full_k_proj_v_proj)
    # D00.context_full.norm_rope_append
    k.rms_norm(b.D00_context_full_kn, b.D00_context_full_k0, w.D00_attention_full_k_norm, eps=1e-05)
    k.rope(state, b.D00_context_full_k, b.D00_context_full_kn, table="draft.rope")
    k.context_append(state, b.D00_context_full_k, b.D00_context_full_v, layer=0)
    # D01.context_full.k_proj_v_proj
    k.linear(b.D01_context_full_k_proj_v_proj, b.draft_fuse_ctx, w.D01_context_full_k_proj_v_proj)
    # D01.context_full.norm_rope_append
    k.rms_norm(b.D01_context_full_kn, b.D01_context_full_k0, w.D01_attention_full_k_norm, eps=1e-05)
    k.rope(state, b.D01_context_full_k, b.D01_context_full_kn, table="draft.rope")
    k.context_append(state, b.D01_context_full_k, b.D01_context_full_v, layer=1)
    # D02.context_full.k_proj_v_proj
    k.linear(b.D02_context_full_k_proj_v_proj, b.draft_fuse_ctx, w.D02_context_full_k_proj_v_proj)
    # D02.context_full.norm_rope_append
    k.rms_norm(b.D02_context_full_kn, b.D02_context_full_k0, w.D02_attention_full_k_norm, eps=1e-05)
    k.rope(state, b.D02_context_full_k, b.D02_context_full_kn, table="draft.rope")
    k.context_append(state, b.D02_context_full_k, b.D02_context_full_v, layer=2)
    return
    yield  # no collectives: still a generator, like the programs of many ranks


def draft_block(k, w, b, state):
    """46 calls, up to 8 rows."""
    # draft.embed.tokens
    k.embedding(b.draft_embed_x, b.tokens, w.embed_tokens, first=0)
    # D00.attention_full.norm_linear
    k.rms_norm(b.D00_attention_full_h, b.draft_embed_x, w.D00_attention_full_norm, eps=1e-05)
    k.linear(b.D00_attention_full_q_proj_k_proj_v_proj, b.D00_attention_full_h,
        w.D00_attention_full_q_proj_k_proj_v_proj)
    # D00.attention_full.q_rope.norm_rope
    k.rms_norm(b.D00_attention_full_qn, b.D00_attention_full_q0, w.D00_attention_full_q_norm, eps=1e-05)
    k.rope(state, b.D00_attention_full_q, b.D00_attention_full_qn, table="draft.rope")
    # D00.attention_full.k_rope.norm_rope
    k.rms_norm(b.D00_attention_full_kn, b.D00_attention_full_k0, w.D00_attention_full_k_norm, eps=1e-05)
    k.rope(state, b.D00_attention_full_k, b.D00_attention_full_kn, table="draft.rope")
    # D00.attention_full.attend
    k.block_attention(state, b.D00_attention_full_o, b.D00_attention_full_q, b.D00_attention_full_k,
        b.D00_attention_full_v, layer=0, scale=0.1767766952966369, window=0, causal=False)
    # D00.attention_full.o_proj
    k.linear(b.D00_attention_full_attn, b.D00_attention_full_o, w.D00_attention_full_o_proj)
    # D00.mlp.add_norm_linear
    k.add(b.D00_attention_full_y, b.draft_embed_x, b.D00_attention_full_attn)
    k.rms_norm(b.D00_mlp_h, b.D00_attention_full_y, w.D00_mlp_norm, eps=1e-05)
    k.linear(b.D00_mlp_gate_up, b.D00_mlp_h, w.D00_mlp_gate_up)
    # D00.mlp.swiglu_linear
    k.swiglu(b.D00_mlp_a, b.D00_mlp_g, b.D00_mlp_u)
    k.linear(b.D00_mlp_m, b.D00_mlp_a, w.D00_mlp_down)
    # D01.attention_full.add_norm_linear
    k.add(b.D00_mlp_y, b.D00_attention_full_y, b.D00_mlp_m)
    k.rms_norm(b.D01_attention_full_h, b.D00_mlp_y, w.D01_attention_full_norm, eps=1e-05)
    k.linear(b.D01_attention_full_q_proj_k_proj_v_proj, b.D01_attention_full_h,
        w.D01_attention_full_q_proj_k_proj_v_proj)
    # D01.attention_full.q_rope.norm_rope
    k.rms_norm(b.D01_attention_full_qn, b.D01_attention_full_q0, w.D01_attention_full_q_norm, eps=1e-05)
    k.rope(state, b.D01_attention_full_q, b.D01_attention_full_qn, table="draft.rope")
    # D01.attention_full.k_rope.norm_rope
    k.rms_norm(b.D01_attention_full_kn, b.D01_attention_full_k0, w.D01_attention_full_k_norm, eps=1e-05)
    k.rope(state, b.D01_attention_full_k, b.D01_attention_full_kn, table="draft.rope")
    # D01.attention_full.attend
    k.block_attention(state, b.D01_attention_full_o, b.D01_attention_full_q, b.D01_attention_full_k,
        b.D01_attention_full_v, layer=1, scale=0.1767766952966369, window=0, causal=False)
    # D01.attention_full.o_proj
    k.linear(b.D01_attention_full_attn, b.D01_attention_full_o, w.D01_attention_full_o_proj)
    # D01.mlp.add_norm_linear
    k.add(b.D01_attention_full_y, b.D00_mlp_y, b.D01_attention_full_attn)
    k.rms_norm(b.D01_mlp_h, b.D01_attention_full_y, w.D01_mlp_norm, eps=1e-05)
    k.linear(b.D01_mlp_gate_up, b.D01_mlp_h, w.D01_mlp_gate_up)
    # D01.mlp.swiglu_linear
    k.swiglu(b.D01_mlp_a, b.D01_mlp_g, b.D01_mlp_u)
    k.linear(b.D01_mlp_m, b.D01_mlp_a, w.D01_mlp_down)
    # D02.attention_full.add_norm_linear
    k.add(b.D01_mlp_y, b.D01_attention_full_y, b.D01_mlp_m)
    k.rms_norm(b.D02_attention_full_h, b.D01_mlp_y, w.D02_attention_full_norm, eps=1e-05)
    k.linear(b.D02_attention_full_q_proj_k_proj_v_proj, b.D02_attention_full_h,
        w.D02_attention_full_q_proj_k_proj_v_proj)
    # D02.attention_full.q_rope.norm_rope
    k.rms_norm(b.D02_attention_full_qn, b.D02_attention_full_q0, w.D02_attention_full_q_norm, eps=1e-05)
    k.rope(state, b.D02_attention_full_q, b.D02_attention_full_qn, table="draft.rope")
    # D02.attention_full.k_rope.norm_rope
    k.rms_norm(b.D02_attention_full_kn, b.D02_attention_full_k0, w.D02_attention_full_k_norm, eps=1e-05)
    k.rope(state, b.D02_attention_full_k, b.D02_attention_full_kn, table="draft.rope")
    # D02.attention_full.attend
    k.block_attention(state, b.D02_attention_full_o, b.D02_attention_full_q, b.D02_attention_full_k,
        b.D02_attention_full_v, layer=2, scale=0.1767766952966369, window=0, causal=False)
    # D02.attention_full.o_proj
    k.linear(b.D02_attention_full_attn, b.D02_attention_full_o, w.D02_attention_full_o_proj)
    # D02.mlp.add_norm_linear
    k.add(b.D02_attention_full_y, b.D01_mlp_y, b.D02_attention_full_attn)
    k.rms_norm(b.D02_mlp_h, b.D02_attention_full_y, w.D02_mlp_norm, eps=1e-05)
    k.linear(b.D02_mlp_gate_up, b.D02_mlp_h, w.D02_mlp_gate_up)
    # D02.mlp.swiglu_linear
    k.swiglu(b.D02_mlp_a, b.D02_mlp_g, b.D02_mlp_u)
    k.linear(b.D02_mlp_m, b.D02_mlp_a, w.D02_mlp_down)
    # D02.mlp.residual
    k.add(b.D02_mlp_y, b.D02_attention_full_y, b.D02_mlp_m)
    # draft.head.take_norm_linear
    k.take_rows(state, b.draft_head_rows, b.D02_mlp_y)
    k.rms_norm(b.draft_head_h, b.draft_head_rows, w.draft_head_norm, eps=1e-05)
    k.linear(b.logits, b.draft_head_h, w.head_lm_head)
    return
    yield  # no collectives: still a generator, like the programs of many ranks
