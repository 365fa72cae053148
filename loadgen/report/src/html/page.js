(() => {
  "use strict";
  const tip = document.getElementById("tip");
  const hide = () => { tip.style.opacity = 0; };
  const show = (content, x, y) => {
    tip.replaceChildren(...[content].flat());
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(6, Math.min(x + 14, innerWidth - box.width - 6)) + "px";
    tip.style.top = Math.max(6, y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18) + "px";
    tip.style.opacity = 1;
  };
  const point = (event) => {
    if (event.target.closest && event.target.closest(".u-over")) return;
    const about = event.target.closest && event.target.closest("[data-tip]");
    if (about) show(about.dataset.tip, event.clientX, event.clientY); else hide();
  };
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("scroll", hide, { passive: true });

  // Looks, used cyclically by the series of a figure. Markers are centred, in CSS pixels.
  const COLOURS = 9;
  const DASHES = [[], [6, 4], [2, 3]];
  const MARKERS = ["M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", "M-4.2 -4.2h8.4v8.4h-8.4z", "M0 -5.4l5.2 9h-10.4z", "M0 -5.4l5.4 5.4l-5.4 5.4l-5.4 -5.4z"];
  const KNEE = "M0 -8v-10M-3 -11l3 3l3 -3";
  const FONT = '12px system-ui, "DejaVu Sans", sans-serif';
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (look) => css(`--s${look.colour % COLOURS}`);
  const make = (name, attributes, ...children) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };

  const digits = (value, count = 3) => Number(value.toPrecision(count)).toLocaleString("en", { maximumSignificantDigits: count });
  const TEXT = {
    latency: (us) => us < 999.5 ? `${digits(us)} µs` : us < 999500 ? `${digits(us / 1e3)} ms` : `${digits(us / 1e6)} s`,
    rate: (rate) => digits(rate, 4),
    count: (count) => digits(count, 4),
    dollars: (usd) => `$${digits(usd)}`,
    share: (share) => `${digits(100 * share)} %`,
    nines: (nines) => `${Number((100 - 100 / 10 ** nines).toFixed(Math.min(4, Math.ceil(nines) + 1)))} %`,
  };
  const NINES = [0, -Math.log10(0.5), 1, 2, 3, 4];

  // Round numbers of a logarithmic axis, as many as fit; in equal steps if the axis is too short for decades.
  const logTicks = (from, to, room) => {
    for (const steps of [[1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
      const ticks = [];
      for (let decade = Math.floor(Math.log10(from)); decade <= Math.ceil(Math.log10(to)); decade++) {
        ticks.push(...steps.map((step) => Number((step * 10 ** decade).toPrecision(6))).filter((tick) => tick >= from && tick <= to));
      }
      if (ticks.length <= room || steps.length === 1) return ticks.length > 2 || to >= 10 * from ? ticks : evenTicks(from, to, room);
    }
  };
  const evenTicks = (from, to, room) => {
    const least = (to - from) / Math.max(2, Math.min(5, room));
    const power = 10 ** Math.floor(Math.log10(least));
    const step = power * [1, 2, 5, 10].find((times) => times * power >= least);
    const ticks = [];
    for (let at = Math.ceil(from / step); at * step <= to; at++) ticks.push(Number((at * step).toPrecision(6)));
    return ticks;
  };

  const axis = (told, side, size, only) => ({
    side, size, font: FONT, labelFont: FONT, gap: 6,
    label: side === 2 ? told.name : undefined, labelSize: 20,
    stroke: () => css("--soft"),
    grid: { stroke: () => css("--grid"), width: 1, show: side === 3 },
    ticks: { stroke: () => css("--line"), width: 1, size: 5 },
    border: { show: side === 2, stroke: () => css("--line"), width: 1 },
    space: side === 2 ? 64 : 34,
    values: (_, splits) => splits.map((value) => value === null ? null : TEXT[told.unit](value)),
    ...(told.unit === "nines" && { splits: (_u, _i, from, to) => NINES.filter((tick) => tick >= from - 0.01 && tick <= to + 0.01) }),
    ...(only && { splits: () => only }),
    ...(told.log && {
      splits: (u, _i, from, to) => logTicks(from, to, (side === 2 ? u.width - 90 : u.height - 60) / (side === 2 ? 56 : 34)),
      filter: (_, splits) => splits,
    }),
  });

  const scale = (told, view, key) => ({ time: false, distr: told.log ? 3 : 1, range: () => view[key] });

  // Intervals are drawn only for the line under the pointer: all of them would hide the lines.
  const draw = (u, chart, line, look, isNear) => {
    const { ctx, bbox } = u, ratio = uPlot.pxRatio;
    const x = (value) => u.valToPos(value, "x", true);
    const y = (value) => u.valToPos(Math.max(value, chart.y.log ? u.scales.y.min / 10 : value), "y", true);
    const mark = (path, at, height, hollow) => {
      ctx.save();
      ctx.translate(at, height);
      ctx.scale(ratio, ratio);
      const shape = new Path2D(path);
      if (hollow !== undefined) { ctx.fillStyle = hollow ? css("--bg") : colour(look); ctx.fill(shape); }
      if (hollow !== false) { ctx.lineWidth = 1.7; ctx.stroke(shape); }
      ctx.restore();
    };
    const valid = (index) => !line.off || !line.off[index];
    // A rough percentile has no upper end.
    const yEnd = (value) => (value === null ? bbox.top : y(value));
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left - 6 * ratio, bbox.top, bbox.width + 12 * ratio, bbox.height);
    ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = colour(look);
    ctx.lineJoin = "round";
    for (let to = 1; to < line.x.length; to++) {
      const from = to - 1, both = valid(from) && valid(to);
      if (both && isNear && line.lo) {
        ctx.globalAlpha = 0.14;
        ctx.beginPath();
        for (const [index, end] of [[from, line.lo], [to, line.lo], [to, line.hi], [from, line.hi]]) ctx.lineTo(x(line.x[index]), yEnd(end[index]));
        ctx.fill();
      }
    }
    for (const both of [true, false]) {
      ctx.globalAlpha = both ? 1 : 0.5;
      ctx.lineWidth = (both ? 2 : 1.2) * ratio;
      ctx.setLineDash(DASHES[look.dash % DASHES.length].map((length) => length * ratio));
      ctx.beginPath();
      for (let to = 1; to < line.x.length; to++) {
        if ((valid(to - 1) && valid(to)) !== both) continue;
        if (to === 1 || (valid(to - 2) && valid(to - 1)) !== both) ctx.moveTo(x(line.x[to - 1]), y(line.y[to - 1]));
        ctx.lineTo(x(line.x[to]), y(line.y[to]));
      }
      ctx.stroke();
    }
    ctx.setLineDash([]);
    line.x.forEach((at, index) => {
      if (line.plain && index > 0) return;
      const [left, height] = [x(at), y(line.y[index])];
      if (isNear && line.lo) {
        ctx.globalAlpha = 0.75;
        ctx.lineWidth = 1.2 * ratio;
        ctx.beginPath();
        ctx.moveTo(left, y(line.lo[index]));
        ctx.lineTo(left, yEnd(line.hi[index]));
        ctx.stroke();
      }
      ctx.globalAlpha = 1;
      mark(MARKERS[look.marker % MARKERS.length], left, height, !valid(index));
      if (line.highest && line.highest[0] === at) {
        ctx.lineWidth = 1.7 * ratio;
        ctx.beginPath();
        ctx.moveTo(x(line.highest[1]), height);
        ctx.lineTo(x(line.highest[2]), height);
        ctx.stroke();
        mark("M-8.5 0a8.5 8.5 0 1 0 17 0a8.5 8.5 0 1 0 -17 0z", left, height);
      }
      if (line.knee === at) mark(KNEE, left, height);
    });
    ctx.restore();
  };

  // Objectives, and places that lines have in common.
  const drawLimits = (u, chart) => {
    const { ctx, bbox } = u, ratio = uPlot.pxRatio;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = css("--bad");
    ctx.lineWidth = 1.5 * ratio;
    ctx.font = FONT.replace("12px", `${12 * ratio}px`);
    ctx.textAlign = "left";
    for (const [at, label] of chart.limits) {
      const height = u.valToPos(at, "y", true);
      if (height < bbox.top || height > bbox.top + bbox.height) continue;
      ctx.setLineDash([7 * ratio, 5 * ratio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, height);
      ctx.lineTo(bbox.left + bbox.width, height);
      ctx.stroke();
      ctx.fillText(label, bbox.left + 6 * ratio, height + (height - bbox.top < 20 * ratio ? 14 : -6) * ratio);
    }
    ctx.strokeStyle = ctx.fillStyle = css("--ink");
    if (chart.here) {
      const left = u.valToPos(chart.here[0], "x", true);
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(left, bbox.top);
      ctx.lineTo(left, bbox.top + bbox.height);
      ctx.stroke();
      const toLeft = left + 5 * ratio + ctx.measureText(chart.here[1]).width > bbox.left + bbox.width;
      ctx.textAlign = toLeft ? "right" : "left";
      ctx.fillText(chart.here[1], left + (toLeft ? -5 : 5) * ratio, bbox.top + 12 * ratio);
    }
    ctx.setLineDash([]);
    for (const [left, height] of chart.crosses) {
      ctx.beginPath();
      ctx.arc(u.valToPos(left, "x", true), u.valToPos(height, "y", true), 5 * ratio, 0, 2 * Math.PI);
      ctx.stroke();
    }
    ctx.restore();
  };

  // Value of every series at the cursor, or the nearest one.
  const readout = (u, chart, looks) => {
    const [xText, yText] = [TEXT[chart.x.unit], TEXT[chart.y.unit]];
    const here = u.data[0][u.cursor.idx];
    const rows = chart.lines.flatMap((line, index) => {
      const at = line.x.indexOf(u.data[0][u.cursor.idxs[index + 1]]);
      if (!u.series[index + 1].show || at < 0) return [];
      const isOpen = line.hi && line.hi[at] === null;
      const ends = isOpen ? `≥ ${yText(line.lo[at])}` : line.lo && `${yText(line.lo[at])}–${yText(line.hi[at])}`;
      const interval = line.lo && !(isOpen && line.lo[at] <= 0) ? ` [${ends}]` : "";
      const off = line.off && line.off[at] ? `, ${line.off[at]}` : "";
      const elsewhere = line.x[at] === here ? "" : ` at ${xText(line.x[at])}`;
      return [make("tr", {}, make("td", { style: `color:var(--t${looks[line.series].colour % COLOURS})` }, "■"), make("td", {}, looks[line.series].label),
        make("td", {}, `${yText(line.y[at])}${interval}${elsewhere}${off}`))];
    });
    return [make("b", {}, `${chart.x.name}: ${xText(here)}`), make("table", {}, ...rows)];
  };

  const nearest = (line, at) => {
    let best = 0;
    line.x.forEach((x, index) => { if (Math.abs(x - at) < Math.abs(line.x[best] - at)) best = index; });
    return line.x[best];
  };

  // The line whose value at the cursor is within reach of the pointer; every line for the keyboard, which points at none.
  const NEAR_PX = 40, ALL = -2, NONE = -1;
  const pointedAt = (u, chart) => {
    let best = NONE, distance = NEAR_PX;
    chart.lines.forEach((line, index) => {
      const at = line.x.indexOf(u.data[0][u.cursor.idxs[index + 1]]);
      if (!u.series[index + 1].show || at < 0) return;
      const off = Math.abs(u.valToPos(line.y[at], "y") - u.cursor.top);
      if (off < distance) [best, distance] = [index, off];
    });
    return best;
  };

  let printing = false;
  const plot = (figure, chart, looks, isLeading) => {
    const box = make("div", {}, make("p", { class: "chart-title" }, chart.title));
    figure.append(box);
    const xs = [...new Set(chart.lines.flatMap((line) => line.x))].sort((a, b) => a - b);
    const columns = chart.lines.map((line) => {
      const at = new Map(line.x.map((x, index) => [x, line.y[index]]));
      return xs.map((x) => at.has(x) ? at.get(x) : null);
    });
    // Visible range of the axes: all, or the range selected with the pointer.
    const view = { x: chart.x.range, y: chart.y.range };
    const zoom = (u, x, y) => {
      [view.x, view.y] = [x, y];
      u.batch(() => {
        u.setScale("x", { min: x[0], max: x[1] });
        u.setScale("y", { min: y[0], max: y[1] });
      });
    };
    const whole = (u) => zoom(u, chart.x.range, chart.y.range);
    const size = () => {
      const width = Math.max(200, box.clientWidth);
      return { width, height: isLeading && innerWidth > 900 ? 300 : Math.round(Math.min(340, Math.max(250, 0.6 * width))) };
    };
    const series = chart.lines.map((line) => ({
      stroke: () => colour(looks[line.series]),
      points: { show: false },
      paths: () => null,
      spanGaps: true,
    }));
    let keyed = false, near = NONE;
    const point = (u, index) => { if (near !== index) { near = index; u.redraw(false, false); } };
    const u = new uPlot({
      ...size(),
      legend: { show: false },
      scales: { x: scale(chart.x, view, "x"), y: scale(chart.y, view, "y") },
      axes: [axis(chart.x, 2, 34, xs.length === 1 && xs), axis(chart.y, 3, 66)],
      series: [{}, ...series],
      padding: [10, 22, 0, 0],
      cursor: {
        drag: { x: true, y: true, uni: 40, setScale: false },
        bind: { dblclick: (u) => () => whole(u) },
        points: { size: 9 },
        dataIdx: (u, index, at, value) => index === 0 ? at : xs.indexOf(nearest(chart.lines[index - 1], keyed ? xs[at] : value)),
      },
      hooks: {
        drawSeries: [(u, index) => draw(u, chart, chart.lines[index - 1], looks[chart.lines[index - 1].series], near === ALL || near === index - 1)],
        draw: [(u) => drawLimits(u, chart)],
        setSelect: [(u) => {
          const { left, top, width, height } = u.select;
          if (width < 4 || height < 4) return;
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          zoom(u, [u.posToVal(left, "x"), u.posToVal(left + width, "x")], [u.posToVal(top + height, "y"), u.posToVal(top, "y")]);
        }],
        setCursor: [(u) => {
          const { left, top, idx } = u.cursor;
          if (idx === null || idx === undefined || left < 0) { hide(); point(u, NONE); return; }
          point(u, keyed ? ALL : pointedAt(u, chart));
          const place = u.over.getBoundingClientRect();
          show(readout(u, chart, looks), place.left + left, place.top + Math.max(0, top));
        }],
      },
    }, [xs, ...columns], box);
    const rest = () => { u.setCursor({ left: -10, top: -10 }); hide(); };
    u.over.tabIndex = 0;
    u.over.setAttribute("role", "application");
    u.over.setAttribute("aria-label", `${chart.title}: arrow keys move the cursor, Escape shows all again; the figures are in the table below`);
    u.over.addEventListener("pointerleave", rest);
    u.over.addEventListener("blur", rest);
    u.over.addEventListener("pointermove", () => { keyed = false; });
    u.over.addEventListener("keydown", (event) => {
      const inside = xs.filter((x) => x >= u.scales.x.min && x <= u.scales.x.max);
      const at = u.cursor.left >= 0 && u.cursor.idx !== null ? inside.indexOf(xs[u.cursor.idx]) : -1;
      const to = { ArrowRight: at + 1, ArrowLeft: at < 0 ? inside.length - 1 : at - 1, Home: 0, End: inside.length - 1 }[event.key];
      if (event.key === "Escape") {
        whole(u);
        rest();
      } else if (to !== undefined && inside.length) {
        event.preventDefault();
        keyed = true;
        const x = inside[Math.max(0, Math.min(inside.length - 1, to))];
        u.setCursor({ left: u.valToPos(x, "x"), top: u.over.clientHeight / 3 });
      }
    });
    return { u, fit: () => { const to = size(); if (!printing && to.width !== u.width) u.setSize(to); }, lines: chart.lines };
  };

  const swatch = (look) => {
    const svg = `<svg viewBox="-15 -6 30 12" aria-hidden="true"><path d="M-15 0h30" fill="none" stroke-width="2" stroke-dasharray="${DASHES[look.dash % DASHES.length].join(" ")}" stroke="var(--s${look.colour % COLOURS})"/><path d="${MARKERS[look.marker % MARKERS.length]}" fill="var(--s${look.colour % COLOURS})"/></svg>`;
    return document.createRange().createContextualFragment(svg);
  };

  // A link to a closed section opens it.
  const openPart = (address) => {
    const part = address.length > 1 && document.getElementById(decodeURIComponent(address.slice(1)));
    if (part && part.tagName === "DETAILS") part.open = true;
  };
  document.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a[href^='#']");
    if (link) openPart(link.hash);
  });
  addEventListener("hashchange", () => openPart(location.hash));
  openPart(location.hash);

  const plots = [];
  for (const figure of document.querySelectorAll("figure.plot")) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const legend = make("div", { class: "legend" });
    const panels = make("div", { class: "panels" });
    figure.prepend(legend, panels);
    const own = data.charts.map((chart) => plot(panels, chart, data.series, figure.classList.contains("leading")));
    plots.push(...own);
    const used = data.series.map((_, index) => own.some(({ lines }) => lines.some((line) => line.series === index)));
    data.series.forEach((look, index) => {
      if (!used[index]) return;
      const button = make("button", { type: "button", "aria-pressed": "true" }, swatch(look), look.label);
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") === "false";
        button.setAttribute("aria-pressed", String(shown));
        for (const { u, lines } of own) lines.forEach((line, at) => { if (line.series === index) u.setSeries(at + 1, { show: shown }); });
      });
      legend.append(button);
    });
    // In the next frame, because browsers report an error if a chart resizes inside the callback.
    for (const one of own) new ResizeObserver(() => requestAnimationFrame(one.fit)).observe(one.u.root.parentElement);
  }

  // Colours are read when a chart is drawn, so a change redraws all charts. Print has light colours and its own width.
  const again = () => plots.forEach(({ u }) => u.redraw(false, true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  const print = (on) => {
    printing = on;
    document.documentElement.classList.toggle("printing", on);
    plots.forEach(({ u, fit }) => { if (on) u.setSize({ width: 340, height: 240 }); else fit(); });
    again();
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
})();
