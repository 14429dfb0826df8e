const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
/** Letters of a short name. */
const SHORT = 3;

/** Directives of Python's `strftime` that chat templates use, in English on every machine. */
const DIRECTIVES: Readonly<Record<string, (date: Date) => string>> = {
  Y: (date) => String(date.getFullYear()),
  y: (date) => twoDigits(date.getFullYear() % 100),
  m: (date) => twoDigits(date.getMonth() + 1),
  d: (date) => twoDigits(date.getDate()),
  H: (date) => twoDigits(date.getHours()),
  M: (date) => twoDigits(date.getMinutes()),
  S: (date) => twoDigits(date.getSeconds()),
  b: (date) => month(date).slice(0, SHORT),
  B: (date) => month(date),
  a: (date) => day(date).slice(0, SHORT),
  A: (date) => day(date),
  '%': () => '%',
};

/** Formats a local time as Python's `strftime` does; an unknown directive stays unchanged. */
export function formatTime(date: Date, format: string): string {
  return format.replaceAll(/%([a-zA-Z%])/g, (written, directive: string) => DIRECTIVES[directive]?.(date) ?? written);
}

const month = (date: Date): string => MONTHS[date.getMonth()] ?? '';
const day = (date: Date): string => DAYS[date.getDay()] ?? '';
const twoDigits = (value: number): string => String(value).padStart(2, '0');
