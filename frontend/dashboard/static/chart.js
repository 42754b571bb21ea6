// A chart over time: lines or a stack, marks of what happened, and a legend with the values under the cursor.

import { html, useEffect, useRef, useState } from "./htm-preact.js";
import { clock } from "./format.js";

const HEIGHT = 168;
const GAP_MS = 30_000; // without a point for so long, a line is broken
const LEAST_MS = 300_000; // shown, however short the history is
const probe = document.body.appendChild(document.createElement("i"));
probe.hidden = true;

/** A colour of the style sheet as a canvas takes it, in the present theme. */
function css(name, share = 100) {
  probe.style.color = `color-mix(in srgb, var(${name}) ${share}%, transparent)`;
  return getComputedStyle(probe).color;
}

/**
 * @param title the heading.
 * @param lines the series: {label, color (a CSS variable), value (of a point), shown (text of a value), axis ("y" or "right"),
 *   least (the least height of the axis)}.
 * @param points the history, the oldest first.
 * @param marks {atMs, text, color}: vertical lines.
 * @param stacked whether the series stand upon each other, as areas.
 * @param most the largest value of the axis, where it is fixed.
 */
export function Chart({ title, note, lines, points, marks = [], stacked = false, most, theme }) {
  const place = useRef();
  const plot = useRef();
  const drawn = useRef(marks);
  const [at, setAt] = useState(null);
  const rows = broken(points);
  drawn.current = marks;

  useEffect(() => {
    plot.current = new uPlot(options(lines, drawn, stacked, most, setAt), [[], ...lines.map(() => [])], place.current);
    const observer = new ResizeObserver(([entry]) => plot.current.setSize({ width: entry.contentRect.width, height: HEIGHT }));
    observer.observe(place.current);
    return () => (observer.disconnect(), plot.current.destroy());
  }, [lines.map((line) => line.label).join(), theme]);

  useEffect(() => {
    const data = [rows.map((point) => point.at_ms / 1000), ...columns(rows, lines, stacked)];
    plot.current.setData(data, false);
    const last = points.at(-1)?.at_ms ?? Date.now();
    const first = Math.max(last - 3_600_000, Math.min(points[0]?.at_ms ?? last, last - LEAST_MS));
    plot.current.setScale("x", { min: first / 1000, max: last / 1000 });
  }, [points.at(-2)?.at_ms, marks.length, lines.length, theme]); // the last point moves with each look: drawn with the next one that is kept

  const point = (at !== null && rows[at]?.known !== false && rows[at]) || points.at(-1);
  const values = point ? lines.map((line) => [line, line.shown(line.value(point) ?? 0)]) : [];
  const summary = `${title}, the last hour. Now: ${values.map(([line, text]) => `${line.label} ${text}`).join(", ") || "nothing"}.`;
  return html`<section class="card chart ${stacked ? "wide" : ""}">
    <h3>${title}${note && html`<small>${note}</small>`}</h3>
    <div class="legend" aria-hidden="true">
      ${values.map(([line, text]) => html`<span><i style=${{ background: `var(${line.color})` }}></i>${line.label} <b>${text}</b></span>`)}
      ${at !== null && point && html`<time>${clock(point.at_ms)}</time>`}
    </div>
    <div ref=${place} role="img" aria-label=${summary}></div>
  </section>`;
}

/** The points, with an unknown one in each gap. */
function broken(points) {
  return points.flatMap((point, index) => {
    const before = points[index - 1];
    const isGap = before && point.at_ms - before.at_ms > GAP_MS;
    return isGap ? [{ at_ms: before.at_ms + 1, known: false }, point] : [point];
  });
}

function columns(rows, lines, stacked) {
  const sums = rows.map(() => 0);
  return lines.map((line) =>
    rows.map((point, row) => {
      if (point.known === false) return null;
      const value = line.value(point);
      if (!stacked || value === null) return value;
      return (sums[row] += value);
    }),
  );
}

function options(lines, marks, stacked, most, setAt) {
  const axis = { stroke: () => css("--soft"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
  const right = lines.find((line) => line.axis === "right");
  const spaced = { ...axis, size: 52, space: 26 };
  const range = (line) => (_, _least, highest) => [0, most ?? Math.max(highest * 1.15, line.least)];
  const ticks = (line) => (_, values) => values.map((value) => (value ? line.shown(value) : "0"));
  return {
    width: 300,
    height: HEIGHT,
    padding: [10, right ? 0 : 20, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "time" }, drag: { x: false, y: false }, points: { size: 6 } },
    scales: { y: { range: range(lines[0]) }, ...(right && { right: { range: range(right) } }) },
    axes: [
      { ...axis, space: 64, size: 28, values: "{HH}:{mm}", incrs: [60, 120, 300, 600, 900, 1800] },
      { ...spaced, values: ticks(lines[0]) },
      ...(right ? [{ ...spaced, side: 1, scale: "right", grid: { show: false }, values: ticks(right) }] : []),
    ],
    series: [
      {},
      ...lines.map((line) => ({
        scale: line.axis ?? "y",
        stroke: () => css(line.color),
        fill: stacked ? () => css(line.color, 40) : undefined,
        width: 1.5,
        points: { show: (plot) => plot.data[0].length < 3, size: 5 },
      })),
    ],
    bands: stacked ? lines.slice(1).map((_, index) => ({ series: [index + 2, index + 1] })) : [],
    hooks: {
      setCursor: [(plot) => setAt(plot.cursor.idx ?? null)],
      draw: [(plot) => drawMarks(plot, marks.current)],
    },
  };
}

function drawMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  for (const mark of marks) {
    const x = Math.round(plot.valToPos(mark.atMs / 1000, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = css(mark.color);
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x, bbox.top, 3 * devicePixelRatio, 0, 7);
    ctx.fill();
  }
  ctx.restore();
}
