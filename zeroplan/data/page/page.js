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

  const words = (verdict) => (verdict === null ? "not possible" : verdict.replaceAll("_", " "));
  const span = (each) => `${figure(each.low_seconds)}-${figure(each.high_seconds)}`;
  const waits = (each) => (each.step_seconds === null ? null
    : 100 * each.exposed_communication_seconds / each.step_seconds);

  const cells = {
    verdict: (each) => words(each.verdict),
    device: (each) => figure(each.device_bytes, GIB),
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

  const given = (name) => {
    const value = document.getElementById(`give-${name}`).valueAsNumber;
    return value > 0 ? value : null;
  };
  const at = (key) => grid.axes[key][Number(controls[key].value)];

  // As zeroplan.estimation.budget does in Python: whole steps, times the step, GPUs and price.
  const costs = (each) => {
    const price = given("price"), tokens = given("tokens"), gpus = at("cluster.gpus");
    if (each.step_seconds === null) return {};
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
    if (found.million) parts.push(`${significant(found.million)} USD per million tokens`);
    if (found.days) parts.push(`${significant(found.days)} days for all tokens`);
    if (found.total) parts.push(`${significant(found.total)} USD`);
    return parts.length ? ` It takes ${parts.join(", ")}.` : "";
  };

  const sentence = (each) => {
    if (!each) return "Nothing fits.";
    if (each.verdict === null) return `${each.strategy} is not possible here.`;
    return `${each.strategy} ${each.verdict === "tight" ? "is tight" : words(each.verdict)}: `
      + `${figure(each.device_bytes, GIB)} of ${significant(grid.usable_bytes / GIB)} GiB, `
      + `${figure(each.step_seconds)} s per step (${figure(each.low_seconds)} to `
      + `${figure(each.high_seconds)} s), ${figure(waits(each))} % of it waiting for communication.`
      + paid(each);
  };

  const show = () => {
    for (const [key, control] of Object.entries(controls)) {
      if (control.type !== "range") continue;
      const told = grid.axes[key][Number(control.value)].toLocaleString("en-US");
      control.setAttribute("aria-valuetext", told);
      control.parentElement.querySelector("output").textContent = told;
    }
    const plans = grid.axes["sharding.strategy"].map(plan);
    const fitting = plans.filter((each) => ["fits", "tight"].includes(each.verdict));
    const fastest = fitting.reduce(
      (best, each) => (best && best.step_seconds <= each.step_seconds ? best : each), null);
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
    verdict.textContent = sentence(chosen);
    verdict.className = `verdict ${chosen ? chosen.verdict ?? "" : "does_not_fit"}`;
    showCosts(plans, chosen);
    charts(plans);
  };

  form.addEventListener("input", show);
  form.addEventListener("reset", () => setTimeout(show));
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
})();
