// The last hour of a job, and what happened in it.

import { counted } from "./format.js";

const HOUR_MS = 3_600_000;

/** The points that are kept, with newer ones behind them. */
export function extended(points, newer) {
  const all = [...points, ...newer];
  const first = (all.at(-1)?.at_ms ?? 0) - HOUR_MS;
  return newer.length ? all.filter((point) => point.at_ms >= first) : points;
}

/** Restarts, changes of the model, nodes that came and went, and decisions of the autoscaler: {atMs, text, color}, the oldest first. */
export function marksOf(points, decisions) {
  const marks = decisions.map(({ at_ms: atMs, words }) => ({ atMs, text: `autoscaler: ${words}`, color: "--accent" }));
  points.forEach((point, index) => {
    const before = points[index - 1];
    if (!before) return;
    const mark = (text, color) => marks.push({ atMs: point.at_ms, text, color });
    const restarts = point.restarts - before.restarts; // of all nodes: one that came, or came back, brings its own
    if (restarts > 0 && point.nodes <= before.nodes) mark(`${restarts} ${restarts === 1 ? "process" : "processes"} restarted`, "--bad");
    if (point.model !== before.model) mark(`model changed to ${point.model || "an unknown one"}`, "--accent");
    if (point.nodes !== before.nodes) mark(`${counted(point.nodes, "node")} ready, ${counted(before.nodes, "node")} before`, "--warn");
  });
  return marks.sort((one, other) => one.atMs - other.atMs);
}
