const DATE_31 = '(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])';
const DATE_30 = '(0[469]|11)-(0[1-9]|[12][0-9]|30)';
/** Without 29 February: the expression does not tell leap years from others. */
const DATE = `[0-9]{4}-(${DATE_31}|${DATE_30}|02-(0[1-9]|1[0-9]|2[0-8]))`;
const TIME = '([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])';
const BYTE = '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])';
/** Without two hyphens in a row, because a label that begins with `xn--` has rules of its own. */
const LABEL = '[a-z0-9]{1,10}(-[a-z0-9]{1,10}){0,2}';
const HOST = `${LABEL}(\\.${LABEL}){0,5}`;

/** Regular expressions for JSON Schema's formats: each matching text has the format, but not every text of the format matches. */
export const FORMATS: ReadonlyMap<string, string> = new Map([
  ['date', DATE],
  ['time', TIME],
  ['date-time', `${DATE}T${TIME}`],
  ['uuid', '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'],
  ['ipv4', `${BYTE}(\\.${BYTE}){3}`],
  ['hostname', HOST],
  ['email', `[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?@${LABEL}(\\.${LABEL}){1,3}`],
  ['uri', `https?://${HOST}(/[A-Za-z0-9._~-]{1,40}){0,8}`],
]);
