"use strict";
(() => {
  const trace = JSON.parse(document.getElementById("trace").textContent);
  const rounds = trace.rounds;
  const letters = Array.from(trace.text); // offsets of the trace count code points
  const byId = (id) => document.getElementById(id);
  const NS = "http://www.w3.org/2000/svg";
  const ROW = 33, AIRY = 56, PILL = 25, GAP = 46, EDGE = 16, PAUSE_MS = 1000, LONGEST = 20;
  let at = 0, chosen = null, timer = null, shapes = [];

  // ---- small makers: texts only ever enter as text nodes ----
  function make(name, attributes, ...children) {
    const element = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }
  function html(name, text, className) {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  }

  // A token's text on one line with nothing hidden in it, as the terminal drawing shows it.
  function visible(piece) {
    if (piece === "") return "∅";
    return piece
      .replace(/ {4,}/g, (run) => `·×${run.length}`).replace(/ /g, "·")
      .replace(/\n/g, "⏎").replace(/\t/g, "⇥")
      .replace(/[\p{C}\p{Zl}\p{Zp}\p{Zs}]/gu, (char) => {
        const code = char.codePointAt(0);
        if (code < 256) return "\\x" + code.toString(16).padStart(2, "0");
        return code < 65536 ? "\\u" + code.toString(16).padStart(4, "0") : "\\U" + code.toString(16).padStart(8, "0");
      });
  }
  function short(piece) {
    const chars = Array.from(visible(piece));
    return chars.length <= LONGEST ? chars.join("") : chars.slice(0, LONGEST - 7).join("") + "…" + chars.slice(-6).join("");
  }
  function percent(chance) {
    if (chance === null) return "";
    if (chance < 0.01) return "<1%";
    return chance < 1 ? `${Math.min(Math.round(100 * chance), 99)}%` : "100%";
  }

  // ---- facts of a round ----
  const path = (round, node) => (node === 0 ? 1 : round.probabilities[node - 1]);
  function own(round, node) {
    const above = path(round, round.parents[node]), mine = path(round, node);
    if (above === null || mine === null) return null;
    return above > 0 ? Math.min(mine / above, 1) : 0;
  }
  const known = (round) => round.probabilities.every((chance) => chance !== null);
  const expected = (round) => 1 + round.probabilities.reduce((sum, chance) => sum + chance, 0);
  const committed = rounds.map((round) => round.accepted.length);
  const total = committed.reduce((sums, count) => [...sums, (sums.at(-1) ?? 0) + count], []);

  // ---- the tree ----
  const ruler = document.createElement("canvas").getContext("2d");
  const mono = getComputedStyle(document.documentElement).getPropertyValue("--mono");
  function textWidth(text, size, weight) {
    ruler.font = `${weight} ${size}px ${mono}`;
    return Math.ceil(ruler.measureText(text).width);
  }

  // Nodes with kind, text and place; the next token is a node of its own, number n + 1.
  function layout(round) {
    const onPath = new Set(round.accepted), end = round.accepted.at(-1), count = round.tokens.length;
    const nodes = round.parents.map((parent, node) => ({
      node, parent, depth: node ? round.depths[node - 1] : 0, children: [],
      kind: node === 0 ? "root" : onPath.has(node) ? "accepted" : "rejected",
      piece: node ? round.pieces[node - 1] : round.root_piece,
      chance: node ? own(round, node) : null, path: path(round, node),
    }));
    nodes.push({
      node: count + 1, parent: end, depth: nodes[end].depth + 1, children: [], kind: "bonus",
      piece: round.next_piece, chance: null, path: null,
    });
    nodes[end].children.push(count + 1);
    for (const item of nodes) {
      if (item.node > 0 && item.node <= count) nodes[item.parent].children.push(item.node);
      item.label = short(item.piece);
      item.note = percent(item.chance);
      const noteWidth = item.note ? textWidth(item.note, 11, 400) + 8 : 0;
      item.labelWidth = textWidth(item.label, 13, item.kind === "rejected" ? 400 : 700);
      item.width = Math.max(item.labelWidth + noteWidth + 18, 30);
    }
    const columns = [];
    for (const item of nodes) columns[item.depth] = Math.max(columns[item.depth] ?? 0, item.width);
    const left = [EDGE];
    for (let depth = 1; depth < columns.length; depth++) left[depth] = left[depth - 1] + columns[depth - 1] + GAP;
    let rows = 0;
    const place = (item) => {
      item.x = left[item.depth];
      for (const child of item.children) place(nodes[child]);
      if (!item.children.length) item.row = rows++;
      else item.row = (nodes[item.children[0]].row + nodes[item.children.at(-1)].row) / 2;
    };
    place(nodes[0]);
    return { nodes, left, columns, rows, width: left.at(-1) + columns.at(-1) + EDGE };
  }

  function drawTree(round, fresh) {
    const plan = layout(round), canvas = byId("canvas");
    const wide = canvas.clientWidth - 20, tall = Math.max(canvas.clientHeight - 12, 300);
    const height = (row) => plan.rows * row + 30;
    const whole = Math.min(wide / plan.width, tall / height(ROW), 1.3);
    const scale = Math.max(whole, Math.min(0.85, Math.max(wide / plan.width, 0.7))); // below that it scrolls
    const row = Math.min(Math.max((tall / scale - 30) / plan.rows, ROW), AIRY);
    const y = (item) => 22 + (item.row + 0.5) * row;
    const svg = make("svg", {
      viewBox: `0 0 ${plan.width} ${height(row)}`, width: plan.width * scale, height: height(row) * scale, role: "img",
      "aria-label": spoken(round), class: fresh ? "fresh" : "",
    });
    plan.left.forEach((x, depth) => {
      const name = depth ? `+${depth}` : `position ${round.start}`;
      svg.append(make("text", { x, y: 14, class: "depth" }, name));
    });
    // Accepted edges last, so that they lie on top.
    const order = { rejected: 0, bonus: 1, accepted: 2 };
    for (const item of plan.nodes.slice(1).sort((a, b) => order[a.kind] - order[b.kind])) {
      const above = plan.nodes[item.parent], x1 = above.x + above.width, x2 = item.x, y1 = y(above), y2 = y(item);
      const straight = plan.left[item.depth] - GAP, bend = (x2 - straight) / 2;
      const weight = item.path === null ? 2 : 1 + 4 * Math.sqrt(item.path);
      const edge = make("path", {
        d: `M${x1} ${y1}L${straight} ${y1}C${straight + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
        class: `edge ${item.kind}`, "stroke-width": (item.kind === "rejected" ? weight : Math.max(weight, 2.5)).toFixed(2),
      });
      if (item.kind === "rejected") edge.style.opacity = fade(item.path);
      edge.style.animationDelay = `${item.depth * 35}ms`;
      svg.append(edge);
    }
    shapes = plan.nodes.map((item) => {
      const group = make("g", { class: `node ${item.kind}`, "data-node": item.node },
        make("rect", { x: item.x, y: y(item) - PILL / 2, width: item.width, height: PILL, rx: 8 }),
        make("text", { x: item.x + (item.note ? 9 : (item.width - item.labelWidth) / 2), y: y(item) + 4.5, class: "piece" }, item.label));
      if (item.note) {
        group.append(make("text", { x: item.x + item.width - 9, y: y(item) + 4, "text-anchor": "end", class: "chance" }, item.note));
      }
      if (item.kind === "rejected") group.style.opacity = fade(item.path, 0.62);
      group.style.animationDelay = `${item.depth * 35}ms`;
      group.addEventListener("pointerenter", () => choose(item.node));
      group.addEventListener("pointerleave", () => choose(null));
      group.addEventListener("click", (event) => { event.stopPropagation(); choose(item.node); });
      svg.append(group);
      return group;
    });
    canvas.replaceChildren(svg);
    const end = plan.nodes[round.accepted.at(-1)];
    canvas.scrollTop = y(end) * scale - canvas.clientHeight / 2;
    canvas.scrollLeft = (end.x + 160) * scale - canvas.clientWidth;
  }
  const fade = (chance, least = 0.4) => (chance === null ? 0.85 : Math.min(least + (1 - least) * Math.sqrt(chance), 1)).toFixed(2);

  // ---- one node in words ----
  function choose(node) {
    chosen = node;
    shapes.forEach((shape, index) => shape.classList.toggle("chosen", index === node));
    const round = rounds[at], detail = byId("detail");
    detail.replaceChildren();
    const say = (...parts) => detail.append(...parts.map((part) => (Array.isArray(part) ? html("code", visible(part[0])) : part)));
    if (node === null) {
      const taken = round.accepted.slice(1).map((index) => round.pieces[index - 1]);
      if (!round.tokens.length) say("Nothing was drafted: the target wrote ", [round.next_piece], ".");
      else if (!taken.length) say("The target took none of the drafts and wrote ", [round.next_piece], " itself.");
      else say("The target accepted ", [taken.join("")], " and wrote ", [round.next_piece], " itself.");
    } else if (node > round.tokens.length) {
      const depth = round.accepted.length;
      say([round.next_piece], ` token ${round.next_token} at position ${round.start + depth}: the target's own, root of the next round.`);
    } else {
      const token = node ? round.tokens[node - 1] : round.root, depth = node ? round.depths[node - 1] : 0;
      say([node ? round.pieces[node - 1] : round.root_piece], ` token ${token} at position ${round.start + depth}`);
      if (node === 0) say(", the last token committed before this round");
      const chance = node ? own(round, node) : null;
      if (chance !== null) say(`, ${number(chance)} in its row, ${number(path(round, node))} with its path`);
      if (node && round.ranks[node - 1] >= 0) say(`, rank ${round.ranks[node - 1] + 1}`);
      const pick = round.posterior_pieces[node];
      if (pick !== null) say(". Behind it the target picks ", [pick], ".");
      else say(". The target was not asked here.");
    }
  }
  const number = (chance) => (chance >= 0.1 ? `${(100 * chance).toFixed(0)}%` : `${(100 * chance).toPrecision(2)}%`);
  function spoken(round) {
    const taken = round.accepted.slice(1).map((index) => visible(round.pieces[index - 1])).join(" ") || "none";
    return `Round ${rounds.indexOf(round) + 1}: ${round.accepted.length - 1} of ${round.tokens.length} drafts accepted: ` +
      `${taken}; next token ${visible(round.next_piece)}`;
  }

  // ---- numbers, text, strip ----
  function drawNumbers(round) {
    const drafts = round.tokens.length;
    const rows = [
      ["Accepted", round.accepted.length - 1, drafts ? `of ${drafts}` : "", "Drafts the target agreed with, of those in the tree"],
      ["Committed", `+${round.accepted.length}`, known(round) && drafts ? `${expected(round).toFixed(1)} expected` : "", "Accepted drafts and the next token"],
      ["τ so far", (total[at] / (at + 1)).toFixed(2), "per round", "Mean of tokens committed per round"],
      ["Budget", trace.budget, "nodes", "Nodes a tree may have besides its root"],
      ["Output", round.output_tokens, "tokens", "Output tokens after this round"],
      ["Position", round.start, "", "Tokens before the root"],
    ];
    byId("numbers").replaceChildren(...rows.map(([name, value, unit, title]) => {
      const cell = html("div"), data = html("dd", String(value));
      cell.title = title;
      if (unit) data.append(" ", html("small", unit));
      cell.append(html("dt", name), data);
      return cell;
    }));
  }
  function drawText(round) {
    const part = (start, end) => letters.slice(start, end).join("");
    const marked = (start, end, name) => html("mark", part(start, end).replace(/\n/g, "⏎\n"), name);
    const next = marked(round.bonus_start, round.text_end, "next"), box = byId("text");
    box.replaceChildren(
      html("span", trace.prompt_text, "prompt"), part(0, round.text_start),
      marked(round.text_start, round.bonus_start, "drafts"), next);
    box.scrollTop = next.offsetTop - box.offsetTop - box.clientHeight + 60;
  }
  function drawStrip() {
    const slots = Math.max(rounds.length, 24), most = Math.max(...committed, 2), tall = 58, unit = (tall - 4) / most;
    const svg = make("svg", { viewBox: `0 0 ${slots * 10} ${tall}`, preserveAspectRatio: "none", role: "img",
      "aria-label": `Tokens committed in each of ${rounds.length} rounds` });
    rounds.forEach((round, index) => {
      const x = index * 10, drafts = (round.accepted.length - 1) * unit;
      const group = make("g", { class: "bars", "data-round": index },
        make("rect", { class: "slot", x, y: 0, width: 10, height: tall }),
        make("rect", { class: "bar bonus", x: x + 1.5, y: tall - unit, width: 7, height: unit - 1 }),
        make("rect", { class: "bar", x: x + 1.5, y: tall - unit - drafts, width: 7, height: drafts }),
        make("title", {}, `Round ${index + 1}: ${round.accepted.length} tokens`));
      group.addEventListener("click", () => { stop(); show(index); });
      svg.append(group);
    });
    const mean = tall - (total.at(-1) / rounds.length) * unit;
    svg.append(make("line", { class: "mean", x1: 0, x2: rounds.length * 10, y1: mean, y2: mean }));
    byId("strip").append(svg);
    byId("tau-note").textContent = `τ ${(total.at(-1) / rounds.length).toFixed(2)} over ${rounds.length} rounds`;
  }

  // ---- moving through the rounds ----
  function show(index, fresh = true) {
    at = Math.min(Math.max(index, 0), rounds.length - 1);
    const round = rounds[at];
    document.body.dataset.round = at + 1;
    byId("round-title").textContent = `Round ${at + 1}`;
    byId("where").textContent = `${at + 1} / ${rounds.length}`;
    byId("slider").value = at + 1;
    byId("first").disabled = byId("previous").disabled = at === 0;
    byId("next").disabled = byId("last").disabled = at === rounds.length - 1;
    drawNumbers(round);
    drawText(round);
    drawTree(round, fresh);
    choose(null);
    for (const bar of document.querySelectorAll(".bars")) bar.classList.toggle("here", Number(bar.dataset.round) === at);
    if (!timer) byId("live").textContent = spoken(round);
    history.replaceState(null, "", `#${at + 1}`);
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    byId("play").setAttribute("aria-pressed", "false");
    byId("play").setAttribute("aria-label", "Play");
  }
  function toggle() {
    if (timer) return stop();
    if (at === rounds.length - 1) show(0);
    byId("play").setAttribute("aria-pressed", "true");
    byId("play").setAttribute("aria-label", "Pause");
    timer = setInterval(() => (at < rounds.length - 1 ? show(at + 1) : stop()), PAUSE_MS);
  }
  function step(index) {
    stop();
    show(index);
  }
  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const count = rounds[at].tokens.length + 2, typing = event.target.id === "slider";
    const acts = {
      ArrowLeft: () => step(at - 1), ArrowRight: () => step(at + 1), Home: () => step(0), End: () => step(rounds.length - 1),
      ArrowDown: () => choose(chosen === null ? 0 : (chosen + 1) % count),
      ArrowUp: () => choose(chosen === null ? count - 1 : (chosen + count - 1) % count),
      Escape: () => choose(null), " ": toggle,
    };
    const act = acts[event.key];
    const scrolls = event.target.id === "text" && event.key.startsWith("Arrow");
    if (!act || scrolls || (typing && event.key !== " ") || (event.key === " " && event.target.tagName === "BUTTON")) return;
    event.preventDefault();
    act();
  }

  byId("engine").textContent = trace.engine;
  const mode = { tree: `tree of ${trace.budget}`, chain: `chain of ${trace.budget}`, off: "no speculation" }[trace.mode];
  const warmth = trace.temperature > 0 ? `temperature ${trace.temperature}` + (trace.seed === null ? "" : `, seed ${trace.seed}`) : "greedy";
  byId("facts").textContent = [
    mode, warmth, `${trace.prompt_ids.length} prompt tokens`, `${trace.output_ids.length} written`, `finished: ${trace.finish_reason}`,
  ].join(" · ");
  if (!rounds.length) {
    byId("round-title").textContent = "No rounds were recorded";
    byId("text").append(html("span", trace.prompt_text, "prompt"), trace.text);
    for (const control of document.querySelectorAll("button, input")) control.disabled = true;
    document.body.dataset.round = 0;
    return;
  }
  byId("slider").max = rounds.length;
  byId("slider").addEventListener("input", (event) => step(Number(event.target.value) - 1));
  byId("first").addEventListener("click", () => step(0));
  byId("previous").addEventListener("click", () => step(at - 1));
  byId("next").addEventListener("click", () => step(at + 1));
  byId("last").addEventListener("click", () => step(rounds.length - 1));
  byId("play").addEventListener("click", toggle);
  document.addEventListener("keydown", onKey);
  window.addEventListener("resize", () => show(at, false));
  window.addEventListener("hashchange", () => step(Number(location.hash.slice(1)) - 1 || 0));
  drawStrip();
  show(Number(location.hash.slice(1)) - 1 || 0);
})();
