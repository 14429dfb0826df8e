const SIZES = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** A size with its unit, such as `1.9 MiB`. */
export function bytes(count: number): string {
  let scaled = count;
  let unit = 0;
  for (; scaled >= 1024 && unit < SIZES.length - 1; unit += 1) scaled /= 1024;
  return `${unit === 0 ? scaled : scaled.toFixed(1)} ${SIZES[unit]}`;
}

/** A time with its unit: `850 ms`, `1.2 s`, `3 min` (up to two hours), `5 h` (up to two days), `12 d`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 2 * 3_600_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 2 * 86_400_000 ? `${Math.round(ms / 3_600_000)} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** The time since an ISO 8601 time, such as `5 s ago`. */
export function ago(time: string, now = Date.now()): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(time)) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86_400)} d ago`;
}

/** Quotes a word for the shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A count with its noun: `1 token`, `2 tokens`. */
export function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** A number such as `1,234,567`, with at most three decimals. */
export function number(count: number): string {
  return count.toLocaleString('en', { maximumFractionDigits: 3 });
}
