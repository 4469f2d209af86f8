"use strict";
// Looks answers up in the grid that Python priced; nothing is computed here but shares, units and,
// from the reader's own price and tokens, costs.
(() => {
  const grid = JSON.parse(document.getElementById("grid").textContent);
  const keys = Object.keys(grid.axes);
  const form = document.getElementById("what-if-form");
  const GIB = 2 ** 30;

  // Three significant digits, thousands separated: zeroplan.rows.significant in Python.
  const significant = (value) => {
    if (value === 0) return "0";
    const rounded = Number(value.toPrecision(3));
    const exponent = Number(value.toExponential(2).split("e")[1]);
    const decimals = Math.max(2 - exponent, 0);
    return rounded.toLocaleString("en-US",
      { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  };
  const figure = (value, scale = 1) => (value === null ? "-" : significant(value / scale));
  const percent = (share, width) => `${(100 * share / width).toFixed(3)}%`;

  const controls = Object.fromEntries(
    [...form.elements].filter((each) => each.dataset.key).map((each) => [each.dataset.key, each]));

  const place = (strategy) => keys.reduce((found, key) => {
    const one = key === "sharding.strategy"
      ? grid.axes[key].indexOf(strategy) : Number(controls[key].value);
    return found * grid.axes[key].length + one;
  }, 0);

  const plan = (strategy) => {
    const where = place(strategy);
    const found = { strategy, verdict: grid.verdicts[where] };
    for (const [name, values] of Object.entries(grid.figures)) found[name] = values[where];
    return found;
  };

  const mayFit = (each) => ["fits", "tight"].includes(each.verdict);
  const belowLimit = (each) => mayFit(each) && each.device_bytes <= grid.usable_bytes;
  const words = (verdict) => (verdict === null ? "not possible" : verdict.replaceAll("_", " "));
  const span = (each) => `${figure(each.low_seconds)}-${figure(each.high_seconds)}`;
  const waits = (each) => (each.step_seconds === null ? null
    : 100 * each.exposed_communication_seconds / each.step_seconds);

  const cells = {
    verdict: (each) => words(each.verdict),
    device: (each) => figure(each.device_bytes, GIB),
    margin: (each) => figure(each.half_band_bytes, GIB),
    peak: (each) => figure(each.peak_allocated_bytes, GIB),
    step: (each) => figure(each.step_seconds),
    band: (each) => (each.step_seconds === null ? "-" : span(each)),
    waits: (each) => figure(waits(each)),
    speed: (each) => figure(each.tokens_per_second_per_gpu),
    mfu: (each) => figure(each.model_flops_utilization, 0.01),
  };

  const bar = (chart, strategy, note, parts, scale, band) => {
    const row = chart.querySelector(`[data-row="${strategy}"]`);
    row.querySelector(".note").textContent = note;
    let begin = 0;
    row.querySelectorAll("rect").forEach((mark, index) => {
      const [value, told] = parts[index];
      const left = Math.min(begin, scale), right = Math.min(begin + value, scale);
      mark.setAttribute("x", percent(left, scale));
      mark.setAttribute("width", percent(right - left, scale));
      mark.querySelector("title").textContent = told;
      begin += value;
    });
    row.querySelector(".cut").textContent = begin > scale ? "»" : "";
    const line = row.querySelector(".band");
    if (line) {
      line.setAttribute("x1", percent(Math.min(band[0], scale), scale));
      line.setAttribute("x2", percent(Math.min(band[1], scale), scale));
    }
    return row;
  };

  const charts = (plans) => {
    const memory = document.getElementById("what-if-memory");
    const time = document.getElementById("what-if-time");
    const longest = Math.max(...plans.map((each) => each.high_seconds ?? 0)) || 1;
    for (const each of plans) {
      const there = each.verdict !== null;
      const allocated = each.peak_allocated_bytes ?? 0, device = each.device_bytes ?? 0;
      bar(memory, each.strategy,
        there ? `${figure(device, GIB)} GiB, ${words(each.verdict)}` : "not possible",
        [[allocated, `peak of tensors: ${figure(allocated, GIB)} GiB`],
          [device - allocated, `allocator, context, NCCL: ${figure(device - allocated, GIB)} GiB`]],
        Number(memory.dataset.scale));
      const step = each.step_seconds ?? 0, idle = each.exposed_communication_seconds ?? 0;
      const late = each.verdict === "does_not_fit" ? ", does not fit" : "";
      const row = bar(time, each.strategy,
        there ? `${figure(step)} s (${figure(each.low_seconds)} to ${figure(each.high_seconds)})${late}`
          : "not possible",
        [[step - idle, `computes, host included: ${figure(step - idle)} s`],
          [idle, `waits for communication: ${figure(idle)} s`]],
        longest, [each.low_seconds ?? 0, each.high_seconds ?? 0]);
      row.setAttribute("class", late ? "faint" : "");
    }
  };

  const field = (name) => document.getElementById(`give-${name}`);
  const wrong = (name) => field(name).validity.badInput
    || (field(name).value !== "" && !(field(name).valueAsNumber > 0));
  const given = (name) => (field(name).value === "" || wrong(name) ? null
    : field(name).valueAsNumber);
  const at = (key) => grid.axes[key][Number(controls[key].value)];

  // As zeroplan.estimation.budget does in Python: whole steps, times the step, GPUs and price.
  const costs = (each) => {
    const price = given("price"), tokens = given("tokens"), gpus = at("cluster.gpus");
    if (!mayFit(each) || each.step_seconds === null) return {};
    const found = {};
    if (price) found.million = price * 1e6 / (3600 * each.tokens_per_second_per_gpu);
    if (tokens) {
      const batch = at("training.micro_batch_size") * at("training.sequence_length")
        * grid.gradient_accumulation_steps * gpus;
      const steps = Math.ceil(Math.round(tokens * 1e9) / batch);
      found.days = steps * each.step_seconds / 86400;
      if (price) {
        const usd = (seconds) => steps * seconds * gpus * price / 3600;
        found.total = usd(each.step_seconds);
        found.ends = `${significant(usd(each.low_seconds))} to ${significant(usd(each.high_seconds))}`;
      }
    }
    return found;
  };

  const showCosts = (plans, chosen) => {
    const place = document.getElementById("what-if-cost");
    place.hidden = !given("price") && !given("tokens");
    for (const each of plans) {
      const row = place.querySelector(`tr[data-row="${each.strategy}"]`);
      row.classList.toggle("chosen", each === chosen);
      const found = costs(each);
      for (const cell of row.querySelectorAll("[data-cost]")) {
        const told = found[cell.dataset.cost] ?? null;
        cell.textContent = typeof told === "string" ? told : figure(told);
      }
    }
  };

  const paid = (each) => {
    const found = costs(each), parts = [];
    if (found.million) {
      parts.push(`${significant(found.million)} USD per million tokens at `
        + `${given("price").toLocaleString("en-US")} USD per GPU-hour`);
    }
    if (found.days) {
      const usd = found.total ? ` and ${significant(found.total)} USD (${found.ends})` : "";
      parts.push(`${significant(found.days)} days${usd} for `
        + `${given("tokens").toLocaleString("en-US")} billion tokens`);
    }
    return parts.length ? ` It takes ${parts.join(", ")}.` : "";
  };

  const inOneNode = () => at("cluster.gpus") <= grid.gpus_per_node;
  const count = (key) => at(key).toLocaleString("en-US");

  // What was asked, so that a copy of the sentence and paper keep it.
  const conditions = () => {
    const gpus = at("cluster.gpus"), link = grid.names[at("cluster.link")];
    const steps = grid.gradient_accumulation_steps;
    return `on ${count("cluster.gpus")} GPU${gpus > 1 ? "s" : ""}`
      + (inOneNode() ? " in one node" : ` in nodes joined by ${link}`)
      + `, ${count("training.micro_batch_size")} x ${count("training.sequence_length")} `
      + "tokens per GPU"
      + (steps > 1 ? `, ${steps.toLocaleString("en-US")} micro-steps` : "");
  };

  const needs = (each) => {
    const device = each.device_bytes, margin = each.half_band_bytes;
    const told = `${figure(device, GIB)} of ${significant(grid.usable_bytes / GIB)} GiB`;
    if (each.verdict !== "tight") return told;
    return `${told}, probably ${belowLimit(each) ? "fits" : "does not fit"} `
      + `(${figure(device - margin, GIB)} to ${figure(device + margin, GIB)})`;
  };

  const sentence = (each) => {
    if (!each) return `Nothing fits ${conditions()}.`;
    if (each.verdict === null) return `${each.strategy} is not possible ${conditions()}.`;
    return `${each.strategy} ${each.verdict === "tight" ? "is tight" : words(each.verdict)} `
      + `${conditions()}: ${needs(each)}; `
      + `${figure(each.step_seconds)} s per step (${figure(each.low_seconds)} to `
      + `${figure(each.high_seconds)} s), ${figure(waits(each))} % of it waiting for communication.`
      + paid(each);
  };

  const FIELDS = ["price", "tokens"];
  const OPENS = "what-if&";  // a fragment that holds answers to other questions begins so
  // Without "micro_": after an ampersand, HTML that does not escape it would read a Greek letter.
  const short = (key) => key.split(".")[1].replace("micro_", "");

  // The controls that are not as in the question, in the address: a link can be sent on.
  const write = () => {
    const told = new URLSearchParams();
    for (const [key, control] of Object.entries(controls)) {
      const asked = key === "sharding.strategy" ? "" : String(grid.asked[keys.indexOf(key)]);
      if (control.value === asked) continue;
      told.set(short(key), key === "sharding.strategy" ? control.value : at(key));
    }
    for (const name of FIELDS) {
      const value = field(name).value;
      if (value !== field(name).defaultValue && !wrong(name)) told.set(name, value);
    }
    const text = told.toString();
    if (!text && !location.hash.startsWith(`#${OPENS}`)) return;
    history.replaceState(null, "", text ? `#${OPENS}${text}` : "#what-if");
  };

  const read = () => {
    if (!location.hash.startsWith(`#${OPENS}`)) return;
    const told = new URLSearchParams(location.hash.slice(1 + OPENS.length));
    for (const [key, control] of Object.entries(controls)) {
      const place = grid.axes[key].findIndex((each) => String(each) === told.get(short(key)));
      const asked = grid.asked[keys.indexOf(key)];
      control.value = key === "sharding.strategy" ? grid.axes[key][place] ?? ""
        : place < 0 ? asked : place;
    }
    for (const name of FIELDS) field(name).value = told.get(name) ?? field(name).defaultValue;
    document.getElementById("what-if").scrollIntoView();
  };

  const showFields = () => {
    for (const name of FIELDS) {
      const message = document.getElementById(`wrong-${name}`);
      message.hidden = !wrong(name);
      for (const [mark, value] of [["aria-invalid", "true"], ["aria-describedby", message.id]]) {
        if (wrong(name)) field(name).setAttribute(mark, value);
        else field(name).removeAttribute(mark);
      }
    }
    document.getElementById("told-link").hidden = !inOneNode();
  };

  const show = () => {
    for (const [key, control] of Object.entries(controls)) {
      if (control.type !== "range") continue;
      const told = grid.axes[key][Number(control.value)].toLocaleString("en-US");
      control.setAttribute("aria-valuetext", told);
      control.parentElement.querySelector("output").textContent = told;
    }
    const plans = grid.axes["sharding.strategy"].map(plan);
    const quickest = (some) => some.reduce(
      (best, each) => (best && best.step_seconds <= each.step_seconds ? best : each), null);
    const fastest = quickest(plans.filter(belowLimit)) ?? quickest(plans.filter(mayFit));
    const named = controls["sharding.strategy"].value;
    const chosen = named ? plans.find((each) => each.strategy === named) : fastest;
    for (const each of plans) {
      const row = document.querySelector(`#what-if-table tr[data-row="${each.strategy}"]`);
      row.classList.toggle("chosen", each === chosen);
      for (const [name, told] of Object.entries(cells)) {
        row.querySelector(`[data-cell="${name}"]`).textContent = told(each);
      }
    }
    const verdict = document.getElementById("what-if-verdict");
    const unsure = !named && chosen && !belowLimit(chosen);
    verdict.textContent = (unsure ? "Nothing fits for sure. " : "") + sentence(chosen);
    verdict.className = `verdict ${chosen ? chosen.verdict ?? "" : "does_not_fit"}`;
    showFields();
    showCosts(plans, chosen);
    charts(plans);
  };

  // A table that goes on beyond the edge of the screen says so.
  const showEdges = () => {
    for (const each of document.querySelectorAll(".scroll")) {
      each.classList.toggle("wide", each.scrollWidth > each.clientWidth + 1);
    }
  };

  const change = () => {
    show();
    write();
    showEdges();
  };
  form.addEventListener("input", change);
  form.addEventListener("reset", () => {
    const kept = FIELDS.map((name) => field(name).value);
    setTimeout(() => {
      FIELDS.forEach((name, place) => { field(name).value = kept[place]; });
      change();
    });
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", () => { read(); show(); });
  addEventListener("resize", showEdges);
  read();
  show();
  showEdges();
})();
