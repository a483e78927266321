"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const start = JSON.parse(document.getElementById("start").textContent);
  const byId = (id) => document.getElementById(id);
  const state = { program: 0, rows: data.rows.includes(8) ? data.rows.indexOf(8) : 0, open: new Set(), as: new Map(), chosen: null };
  const HEIGHT = 34, GAP = 13;

  // ---- words and elements -------------------------------------------------------------------------------------
  const el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "on") for (const [event, what] of Object.entries(value)) node.addEventListener(event, what);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== ""));
    return node;
  };
  const svg = (tag, attributes = {}, ...children) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const bytes = (n) => {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (Math.abs(n) < 1024) return unit === "B" ? `${n.toFixed(0)} B` : `${n.toFixed(1)} ${unit}`;
      n /= 1024;
    }
    return `${n.toFixed(1)} TiB`;
  };
  const big = (n) => {
    for (const [scale, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (n >= scale) return `${(n / scale).toFixed(1)} ${letter}`;
    return n.toFixed(0);
  };
  const us = (n) => n.toFixed(1);
  const ms = (n) => (n / 1e3).toFixed(3);
  const PLACED = { R: "whole on every rank", P: "addends, one a rank", S1: "cut along axis 1" };
  const times = (list) => list.length > 1 ? `${list[0]} – ${list[list.length - 1]}` : list[0];

  const runs = () => data.programs[state.program].runs;
  const key = (number) => `${state.program}/${number}`;
  const layerOf = (number) => state.as.get(key(number)) ?? runs()[number].names[0];
  const rename = (name, run, layer) => { // a name of the first layer of a run, as another layer of it has it
    const number = run.names.indexOf(layer);
    if (number <= 0) return name;
    if (name in run.foreign) return run.foreign[name].replace(/^([LD])(\d+)/, (_, letter, n) => letter + String(Number(n) + number - 1).padStart(2, "0"));
    return name === run.names[0] || name.startsWith(run.names[0] + ".") ? layer + name.slice(run.names[0].length) : name;
  };
  const place = (tensor, run, layer) => { // the layer's number in a checkpoint name
    const first = Number(run.names[0].slice(1)), wanted = Number(layer.slice(1));
    return Number.isInteger(first) && run.names.length > 1 ? tensor.split(".").map((word) => word === String(first) ? String(wanted) : word).join(".") : tensor;
  };
  const taken = (node) => node.predicted_us[state.rows];
  const total = (run) => run.names.length * run.nodes.filter((n) => !n.layers.length).reduce((sum, n) => sum + taken(n), 0) +
    run.nodes.reduce((sum, n) => sum + n.layers.length * taken(n), 0);
  const spent = (run, into = new Map()) => {
    for (const n of run.nodes) into.set(n.component, (into.get(n.component) ?? 0) + taken(n) * (n.layers.length || run.names.length));
    return into;
  };
  const launches = (run) => run.nodes.filter((n) => taken(n) > 0 && !n.layers.length).length;

  // ---- the flow -----------------------------------------------------------------------------------------------
  function drawPrograms() {
    byId("programs").replaceChildren(...data.programs.map((program, i) => el("button", {
      type: "button", role: "tab", "aria-selected": String(i === state.program), "aria-controls": "flow", tabindex: i === state.program ? 0 : -1,
      on: { click: () => { state.program = i; state.chosen = null; draw(); byId("programs").children[i].focus(); },
        keydown: (event) => { const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (step) byId("programs").children[(i + step + data.programs.length) % data.programs.length].click(); } },
    }, program.name)));
  }

  function drawFlow() {
    const program = data.programs[state.program];
    const whole = program.runs.reduce((sum, run) => sum + total(run), 0);
    const parts = [port("reads", program.inputs.map((v) => `${v.name}  ${v.type}`))];
    program.runs.forEach((run, number) => parts.push(el("div", { class: "wire" }), card(run, number, whole)));
    parts.push(el("div", { class: "wire" }), port("gives", program.outputs));
    byId("flow").replaceChildren(...parts);
  }
  const port = (word, names) => el("div", { class: "port" }, word, ...names.slice(0, 8).map((name) => el("code", {}, name)), names.length > 8 ? `and ${names.length - 8} more` : "");

  function card(run, number, whole) {
    const open = state.open.has(key(number)), sum = total(run), count = run.names.length;
    const strip = el("span", { class: "strip", style: `width:${Math.max(2, 100 * sum / whole)}%`, "aria-hidden": "true" },
      ...[...spent(run)].filter(([, t]) => t > 0).map(([name, t]) => el("i", { class: name, style: `flex:${t}`, title: `${name} ${ms(t)} ms` })));
    const head = el("button", { type: "button", "aria-expanded": String(open), "aria-controls": `body-${number}`, "data-run": number,
      on: { click: () => { open ? state.open.delete(key(number)) : state.open.add(key(number)); drawFlow(); focusRun(number); } } },
      el("span", { class: "chevron", "aria-hidden": "true" }),
      el("span", { class: "name" }, times(run.names), count > 1 ? el("span", { class: "times" }, `×${count}`) : ""),
      strip,
      el("span", { class: "quiet" }, `${launches(run)} launch${launches(run) === 1 ? "" : "es"}${count > 1 ? " a layer" : ""}`),
      el("span", { class: "quiet num" }, `${(100 * sum / whole).toFixed(1)} %`),
      el("span", { class: "big num" }, ms(sum), el("small", {}, " ms")));
    return el("div", { class: "run card" }, head, open ? body(run, number) : "");
  }

  function body(run, number) {
    const layer = layerOf(number), most = Math.max(...run.nodes.map(taken), 1e-9);
    const rows = run.nodes.map((node, i) => row(run, number, node, i, layer, most));
    const as = run.names.length > 1 ? el("p", { class: "as" }, el("label", {}, "as layer ", el("select", {
      on: { change: (event) => { state.as.set(key(number), event.target.value); draw(); byId(`body-${number}`).querySelector("select").focus(); } },
    }, ...run.names.map((name) => el("option", { value: name, selected: name === layer }, name)))), `, ${run.names.length} layers are alike`) : "";
    return el("div", { class: "body", id: `body-${number}` }, as, el("div", { class: "list" }, lanes(run, number), el("ol", {}, ...rows.map((r) => el("li", {}, r)))));
  }

  function row(run, number, node, i, layer, most) {
    const held = node.weights.reduce((sum, w) => sum + w.bytes, 0), cut = node.outputs.find((v) => v.placement !== "R");
    const only = node.layers.length ? ` in ${node.layers.join(" ")}` : "";
    const name = rename(node.id, run, layer).replace(layer + ".", "");
    return el("button", { type: "button", class: `row ${node.component}${taken(node) > 0 ? "" : " idle"}`, "data-run": number, "data-node": i,
      "aria-current": String(state.chosen?.run === number && state.chosen?.node === i), title: node.kind + only, on: { click: () => choose(number, i) } },
      el("span", { class: "id" }, el("span", { class: "swatch" }), el("span", {}, name + only)),
      el("span", { class: "shape" }, cut ? el("span", { class: `badge ${cut.placement[0]}`, title: PLACED[cut.placement] ?? cut.placement }, cut.placement) : "",
        cut ? " " : "", node.outputs.map((v) => v.type).join("  ")),
      el("span", { class: "bytes num" }, held ? bytes(held) : ""),
      el("span", { class: "meter" }, el("i", { style: `width:${100 * taken(node) / most}%`, hidden: !(taken(node) > 0), "aria-hidden": "true" }),
        el("span", { class: "num" }, taken(node) > 0 ? `${us(taken(node))} µs` : "–")));
  }

  function lanes(run, number) {
    const count = Math.max(0, ...run.edges.map((e) => e.lane)) + 1, n = run.nodes.length;
    const x = (lane) => 12 + lane * GAP, y = (i) => (i + 0.5) * HEIGHT;
    const drawing = svg("svg", { class: "lanes", width: x(count - 1) + 12, height: n * HEIGHT, "aria-hidden": "true" });
    const lit = state.chosen?.run === number ? state.chosen.node : -1;
    const paths = run.edges.map((e) => {
      const first = e.start < 0 ? 0 : y(e.start), last = e.stop >= n ? n * HEIGHT : y(e.stop);
      const touches = e.start === lit || e.readers.includes(lit);
      const path = svg("path", { d: `M${x(e.lane)} ${first}V${last}`, class: touches ? "lit" : "" }, svg("title", {}, ));
      path.firstChild.textContent = e.value;
      return [touches, path];
    });
    drawing.append(...paths.sort((a, b) => a[0] - b[0]).map((p) => p[1]));
    for (const e of run.edges) for (const i of e.readers) drawing.append(svg("circle", { cx: x(e.lane), cy: y(i), r: 3, class: "other" }));
    for (const e of run.edges) if (e.start >= 0) drawing.append(svg("circle", { cx: x(e.lane), cy: y(e.start), r: 4.5, class: run.nodes[e.start].component }));
    return drawing;
  }

  // ---- details ------------------------------------------------------------------------------------------------
  function drawDetail() {
    const panel = byId("detail");
    if (!state.chosen) return panel.replaceChildren(...overview());
    const run = runs()[state.chosen.run], node = run.nodes[state.chosen.node], layer = layerOf(state.chosen.run), i = state.rows;
    const id = rename(node.id, run, layer);
    panel.className = `card ${node.component}`;
    const where = node.layers.length ? `in ${node.layers.join(", ")}` : run.names.length > 1 ? `in ${run.names.length} layers, ${times(run.names)}` : "";
    const numbers = [["predicted", us(node.predicted_us[i]), "µs"], ["floor", us(node.floor_us[i]), "µs"], ["FLOPs", big(node.flops[i]), ""],
      ["weights read", ...bytes(node.weight_bytes[i]).split(" ")], ["cache read", ...bytes(node.cache_bytes[i]).split(" ")],
      ["activations", ...bytes(node.activation_bytes[i]).split(" ")]];
    panel.replaceChildren(
      el("h2", { id: "node" }, el("span", { class: "swatch" }), id),
      el("p", { class: "sub" }, [node.kind, node.component, where].filter(Boolean).join(" · ")),
      el("dl", { class: "numbers" }, ...numbers.map(([word, value, unit]) => el("div", {}, el("dt", {}, word), el("dd", { "data-number": word }, value, el("small", {}, " " + unit))))),
      el("h3", {}, "Time by rows of a step"), curve(node),
      ...values("Reads", node.inputs, run, layer), ...values("Gives", node.outputs, run, layer),
      ...(node.parts.length ? [el("h3", {}, `One launch of ${node.parts.length} parts`), el("dl", { class: "pairs" },
        ...node.parts.flatMap((p) => [el("dt", {}, p.kind), el("dd", { class: "mono" }, rename(p.id, run, layer))]))] : []),
      ...(node.weights.length ? [el("h3", {}, `Weights of one rank, ${bytes(node.weights.reduce((sum, w) => sum + w.bytes, 0))}`),
        ...node.weights.map((w) => weight(w, run, layer))] : []),
      ...(Object.keys(node.fields).length ? [el("h3", {}, "Fields"), el("dl", { class: "pairs" },
        ...Object.entries(node.fields).flatMap(([name, value]) => [el("dt", {}, name), el("dd", { class: "mono" }, value)]))] : []),
      ...(node.loc ? [el("h3", {}, "Written at"), el("code", {}, node.loc)] : []));
    panel.scrollTop = 0;
  }

  const values = (word, list, run, layer) => list.length ? [el("h3", {}, word), el("dl", { class: "pairs" }, ...list.flatMap((v) => [
    el("dt", { class: "mono" }, rename(v.name, run, layer)),
    el("dd", { class: "mono" }, v.type, v.placement === "R" ? "" : el("span", { class: `badge ${v.placement[0]}`, style: "margin-left:6px" }, `${v.placement}: ${PLACED[v.placement] ?? ""}`))]))] : [];

  const weight = (w, run, layer) => el("div", { class: "weight" },
    el("strong", {}, rename(w.id, run, layer)), el("small", {}, `${w.role}, ${w.shape.join(" × ")}, ${w.packing}, ${bytes(w.bytes)}`),
    el("ul", {}, ...w.tensors.map((t) => el("li", {}, el("code", {}, place(t.tensor, run, layer)), el("small", {}, `${t.dims.join(" × ")} in the checkpoint, ${t.cut}`)))));

  function curve(node) {
    const W = 396, H = 132, left = 52, bottom = 20, most = Math.max(...node.predicted_us, 1e-9), n = data.rows.length;
    const x = (i) => left + 8 + i * (W - left - 18) / Math.max(1, n - 1), y = (v) => 8 + (H - bottom - 8) * (1 - v / most);
    const line = (list) => list.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join("");
    const drawing = svg("svg", { class: "curve", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `from ${us(node.predicted_us[0])} to ${us(node.predicted_us[n - 1])} microseconds` });
    const label = (text, px, py, anchor) => { const t = svg("text", { x: px, y: py, "text-anchor": anchor }); t.textContent = text; return t; };
    for (const part of [0, 0.5, 1]) drawing.append(svg("path", { class: "grid", d: `M${left} ${y(part * most)}H${W - 4}` }), label((part * most).toFixed(most < 10 ? 1 : 0) + (part === 1 ? " µs" : ""), left - 6, y(part * most) + 4, "end"));
    data.rows.forEach((r, i) => { if (n < 9 || [1, 2, 4, 8, 16, 32, 64].includes(r)) drawing.append(label(r, x(i), H - 5, "middle")); });
    drawing.append(svg("path", { class: "floor", d: line(node.floor_us) }), svg("path", { class: "pred", d: line(node.predicted_us) }),
      svg("circle", { cx: x(state.rows), cy: y(node.predicted_us[state.rows]), r: 4.5 }));
    return drawing;
  }

  function overview() {
    byId("detail").className = "card";
    const sums = new Map();
    for (const run of runs()) spent(run, sums);
    const whole = [...sums.values()].reduce((a, b) => a + b, 0);
    return [el("h2", { id: "node" }, data.programs[state.program].name),
      el("p", { class: "sub" }, `${ms(whole)} ms predicted for ${data.rows[state.rows]} row${data.rows[state.rows] === 1 ? "" : "s"}`),
      el("ul", { class: "legend" }, ...[...sums].filter(([, t]) => t > 0).sort((a, b) => b[1] - a[1]).map(([name, t]) => el("li", { class: name }, el("span", { class: "swatch" }), name, el("span", { class: "num" }, `${ms(t)} ms`)))),
      el("h3", {}, "Looking around"),
      el("p", { class: "hint" }, "Open a layer and choose a launch. ", el("kbd", {}, "↑"), " ", el("kbd", {}, "↓"), " move, ", el("kbd", {}, "/"), " finds, ", el("kbd", {}, "Esc"), " closes the details. The lines beside the launches are values: a large dot makes one, small dots read it.")];
  }

  function choose(run, node) {
    state.chosen = { run, node };
    state.open.add(key(run));
    draw();
    byId("flow").querySelector(`.row[data-run="${run}"][data-node="${node}"]`)?.focus({ preventScroll: true });
    const name = rename(runs()[run].nodes[node].id, runs()[run], layerOf(run));
    try { history.replaceState(null, "", "#" + encodeURIComponent(`${data.programs[state.program].name}:${name}`)); } catch { /* a page that may not */ }
  }
  const focusRun = (number) => byId("flow").querySelector(`.run > button[data-run="${number}"]`)?.focus({ preventScroll: true });
  function draw() { drawPrograms(); drawFlow(); drawDetail(); }

  // ---- search -------------------------------------------------------------------------------------------------
  let hits = [], at = 0;
  function find(words) {
    const query = words.trim().toLowerCase(), found = [];
    if (!query) return found;
    data.programs.forEach((program, p) => program.runs.forEach((run, r) => {
      const layer = run.names.find((name) => query === name.toLowerCase() || query.startsWith(name.toLowerCase() + "."));
      run.nodes.forEach((node, n) => {
        const id = rename(node.id, run, layer ?? run.names[0]);
        const text = [id, node.kind, node.component, ...node.parts.map((x) => rename(x.id, run, layer ?? run.names[0]) + " " + x.kind), ...node.weights.flatMap((w) => w.tensors.map((t) => t.tensor))].join(" ").toLowerCase();
        if (text.includes(query)) found.push({ p, r, n, layer, id, rank: id.toLowerCase().includes(query) ? 0 : 1 });
      });
    }));
    return found.sort((a, b) => a.rank - b.rank).slice(0, 40);
  }
  function drawHits() {
    const box = byId("hits"), asked = byId("search").value.trim() !== "";
    box.hidden = !asked;
    byId("search").setAttribute("aria-expanded", String(asked));
    box.replaceChildren(...(hits.length ? hits.map((hit, i) => {
      const run = data.programs[hit.p].runs[hit.r], node = run.nodes[hit.n];
      return el("li", { role: "option", id: `hit-${i}`, "aria-selected": String(i === at), on: { mousedown: (event) => { event.preventDefault(); go(hit); } } },
        el("span", { class: `swatch ${node.component}` }), el("code", {}, hit.id), el("small", {}, `${data.programs[hit.p].name}${run.names.length > 1 && !hit.layer ? ` ×${run.names.length}` : ""}`));
    }) : [el("li", { class: "none" }, "nothing is called so")]));
    if (hits.length) byId("search").setAttribute("aria-activedescendant", `hit-${at}`);
    box.children[at]?.scrollIntoView({ block: "nearest" });
  }
  function go(hit) {
    state.program = hit.p;
    if (hit.layer) state.as.set(`${hit.p}/${hit.r}`, hit.layer);
    byId("search").value = "";
    hits = [];
    drawHits();
    choose(hit.r, hit.n);
    byId("flow").querySelector('.row[aria-current="true"]')?.scrollIntoView({ block: "center" });
  }
  byId("search").addEventListener("input", (event) => { hits = find(event.target.value); at = 0; drawHits(); });
  byId("search").addEventListener("blur", () => { byId("hits").hidden = true; });
  byId("search").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && hits.length) { event.preventDefault(); at = (at + step + hits.length) % hits.length; drawHits(); }
    if (event.key === "Enter" && hits[at]) go(hits[at]);
    if (event.key === "Escape") { event.target.value = ""; hits = []; drawHits(); event.target.blur(); }
    event.stopPropagation();
  });

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, input")) return;
    if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
    if (event.key === "Escape" && state.chosen) { const number = state.chosen.run; state.chosen = null; draw(); focusRun(number); }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || event.target.closest("#programs")) return;
    const stops = [...byId("flow").querySelectorAll("button")], here = stops.indexOf(document.activeElement);
    event.preventDefault();
    const next = stops[here < 0 ? 0 : Math.min(stops.length - 1, Math.max(0, here + step))];
    next.focus();
    if (next.classList.contains("row") && state.chosen) choose(Number(next.dataset.run), Number(next.dataset.node));
  });

  byId("rows").append(...data.rows.map((r, i) => el("option", { value: i, selected: i === state.rows }, String(r))));
  byId("rows").addEventListener("change", (event) => { state.rows = Number(event.target.value); draw(); });

  const [, wanted] = /^#(.*)$/.exec(location.hash) ?? [];
  const [name, id] = decodeURIComponent(wanted ?? "").split(":");
  const hit = id ? find(id).find((h) => data.programs[h.p].name === name && h.id === id) : null;
  data.programs.forEach((program, p) => program.runs.forEach((run, r) => {
    if (start && run.names.includes(start)) { state.open.add(`${p}/${r}`); state.as.set(`${p}/${r}`, start); }
  }));
  const opened = start ? data.programs.findIndex((program) => program.runs.some((run) => run.names.includes(start))) : -1;
  if (opened >= 0) state.program = opened;
  draw();
  if (hit) go(hit);
})();
