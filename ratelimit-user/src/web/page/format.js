// Numbers as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const STEPS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** 12345 as ["12.3", "k"]: three digits are enough to compare. */
export function short(number) {
  const [size, letter] = STEPS.find(([size]) => Math.abs(number) >= size * 0.9995) ?? [1, ""];
  const value = number / size;
  const digits = size === 1 ? (value >= 10 || Number.isInteger(value) ? 0 : 1) : value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return [value.toFixed(digits), letter];
}
export const rate = (number) => short(number ?? 0).join(" ").trim();
export const count = (number) => whole.format(number ?? 0);
export const bits = (number) => { const [value, letter] = short(number ?? 0); return `${value} ${letter}bit/s`; };
export const percent = (part) => (part > 0 && part < 0.001 ? "<0.1 %" : `${(part * 100).toFixed(part < 0.0995 && part > 0 ? 1 : 0)} %`);
export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export function span(seconds) {
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor((s % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}
export const milliseconds = (ms) => (ms < 1000 ? `${ms} ms` : span(ms / 1000));
export const microseconds = (us) => (us < 1000 ? `${us} µs` : `${us / 1000} ms`);
export const words = (name) => String(name).replaceAll("_", " ");
