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
  I: (date) => twoDigits(date.getHours() % 12 || 12),
  p: (date) => (date.getHours() < 12 ? 'AM' : 'PM'),
  j: (date) => String(dayOfYear(date)).padStart(3, '0'),
  b: (date) => month(date).slice(0, SHORT),
  B: (date) => month(date),
  a: (date) => day(date).slice(0, SHORT),
  A: (date) => day(date),
  '%': () => '%',
};

/** Formats a local time as Python's `strftime` does; an unknown directive stays unchanged. `%-d` has no zeros in front. */
export function formatTime(date: Date, format: string): string {
  return format.replaceAll(/%(-?)([a-zA-Z%])/g, (written, sign: string, directive: string) => {
    const text = DIRECTIVES[directive]?.(date) ?? written;
    return sign === '' ? text : text.replace(/^0+(?=\d)/, '');
  });
}

const month = (date: Date): string => MONTHS[date.getMonth()] ?? '';
const day = (date: Date): string => DAYS[date.getDay()] ?? '';
const MS_A_DAY = 86_400_000;
const dayOfYear = (date: Date): number =>
  (Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - Date.UTC(date.getFullYear(), 0, 0)) / MS_A_DAY;
const twoDigits = (value: number): string => String(value).padStart(2, '0');
