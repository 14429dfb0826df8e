import { IndexError } from '../protocol/errors.ts';

/** SQLite's primary result codes for a file whose content is damaged, and for one that is no database. */
const CORRUPT = 11;
const NOT_A_DATABASE = 26;
/** Selects the low byte of an extended result code, which is the primary code. */
const PRIMARY = 0xff;

/**
 * True when the file of an index itself is the reason why it does not open: its content is damaged, or another version of Pie wrote it. Other
 * failures (a full disk, no descriptors left, missing rights) say nothing about the content, and may pass.
 */
export function isDamage(error: unknown): boolean {
  if (error instanceof IndexError) return true;
  const { errcode } = error as { readonly errcode?: unknown };
  return typeof errcode === 'number' && [CORRUPT, NOT_A_DATABASE].includes(errcode & PRIMARY);
}
