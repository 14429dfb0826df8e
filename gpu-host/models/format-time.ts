/** Directives of Python's `strftime` that chat templates use, in English whatever the machine's language. */
const DIRECTIVES: Readonly<Record<string, (date: Date) => string>> = {
  Y: (date) => String(date.getFullYear()),
  y: (date) => twoDigits(date.getFullYear() % 100),
  m: (date) => twoDigits(date.getMonth() + 1),
  d: (date) => twoDigits(date.getDate()),
  H: (date) => twoDigits(date.getHours()),
  M: (date) => twoDigits(date.getMinutes()),
  S: (date) => twoDigits(date.getSeconds()),
  b: (date) => date.toLocaleString('en-US', { month: 'short' }),
  B: (date) => date.toLocaleString('en-US', { month: 'long' }),
  a: (date) => date.toLocaleString('en-US', { weekday: 'short' }),
  A: (date) => date.toLocaleString('en-US', { weekday: 'long' }),
  '%': () => '%',
};

/** Formats a local time as Python's `strftime` does; a directive that is not known stays as it is written. */
export function formatTime(date: Date, format: string): string {
  return format.replaceAll(/%([a-zA-Z%])/g, (written, directive: string) => DIRECTIVES[directive]?.(date) ?? written);
}

const twoDigits = (value: number): string => String(value).padStart(2, '0');
