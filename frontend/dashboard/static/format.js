// Numbers as people read them, in the same units as `cluster-serving status`.

/** A rate or a count with two digits at least: 0, 0.4, 12, 3,400. */
export function number(value) {
  if (value > 0 && value < 10 && !Number.isInteger(value)) return value.toFixed(value < 1 ? 2 : 1);
  return Math.round(value).toLocaleString("en-US");
}

/** Seconds in the unit that fits: 50 µs, 0.4 ms, 12 ms, 3.1 s, 7 min, 5 h. Nothing: no record. */
export function duration(seconds) {
  if (!seconds) return "–";
  for (const [factor, unit, most] of [[1e6, "µs", 100], [1000, "ms", 1000], [1, "s", 100], [1 / 60, "min", 100], [1 / 3600, "h", 48]]) {
    const value = seconds * factor;
    if (Math.round(value) < most) return `${value.toFixed(Number(value.toFixed(1)) < 10 ? 1 : 0)} ${unit}`;
  }
  return `${(seconds / 86400).toFixed(0)} d`;
}

/** How long ago something was, by two clocks that may differ. */
export function ago(seconds) {
  return seconds > 0 ? `${duration(seconds)} ago` : "now";
}

/** A share from 0 to 1 as percent. */
export function percent(share) {
  return `${Math.round(100 * share)}%`;
}

/** The time of day of a Unix time in ms. */
export function clock(atMs) {
  return new Date(atMs).toLocaleTimeString("en-GB");
}

/** `1 node`, `2 nodes`. */
export function counted(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}
