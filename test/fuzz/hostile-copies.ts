import { createHash } from 'node:crypto';
import type { PagesMaker } from '#gpu-host/protocol/calls.ts';
import type { Operation } from '#gpu-host/protocol/operations.ts';
import { PIECE_BYTES } from '#gpu-host/protocol/wire.ts';
import type { Random } from '../harness/random.ts';
import { hostileWord, text, word } from './hostile.ts';

const VERSIONS = ['v1', 'v2', 'v3'];

/**
 * Makes calls that move pages between hosts: in four of ten cases the calls of a whole copy, else one to three such calls. Some of the names,
 * counts, lengths and checksums are wrong.
 * @param fields.name may be in use
 * @param fields.number names a send or a copy that may be open
 * @param fields.first an address for mapped pages
 */
export function hostileCopies(
  random: Random,
  maker: PagesMaker,
  fields: { readonly name: string; readonly number: number; readonly pages: Uint32Array; readonly first: number },
): Operation[] {
  const { name, pages, first } = fields;
  const number = word(random, fields.number);
  const version = text(random, random.pick(VERSIONS));
  switch (random.below(10)) {
    case 0:
      return [{ op: 'name-version', file: random.once(2), name, functionName: text(random, 'f') }];
    case 1:
      return [
        { op: 'send-begin', pages },
        { op: 'send-piece', sending: number },
        { op: 'send-piece', sending: number },
      ];
    case 2:
      return [
        { op: 'send-piece', sending: number },
        { op: 'send-end', sending: number },
      ];
    case 3:
      return [{ op: 'copy-drop', copy: number }];
    case 4:
      return [{ op: 'copy-map', first, version }];
    case 5:
      return [{ op: 'copy-piece', copy: number, bytes: bytesOf(random, random.pick([0, 1, 100, PIECE_BYTES])) }];
    default:
      return wholeCopy(random, maker, { ...fields, number, version });
  }
}

function wholeCopy(
  random: Random,
  maker: PagesMaker,
  { number, version, first }: { readonly number: number; readonly version: string; readonly first: number },
): Operation[] {
  const { pageSize, pageBytes } = maker;
  const count = random.below(3);
  const records = Array.from({ length: count }, () => recordOf(random, maker));
  const allBytes = Buffer.concat(records);
  const bytes = random.once(8) ? allBytes.subarray(random.below(allBytes.length + 1)) : allBytes;
  const checksum = random.once(8) ? text(random, 'no checksum') : createHash('sha256').update(bytes).digest('hex');
  const begin: Operation = {
    op: 'copy-begin',
    version,
    pages: word(random, count),
    fingerprint: text(random, maker.fingerprint),
    pageSize: word(random, pageSize),
    pageBytes: random.once(16) ? Number.MAX_SAFE_INTEGER - random.below(9) : word(random, pageBytes),
  };
  const calls: Operation[] = [begin];
  if (bytes.length > 0) calls.push({ op: 'copy-piece', copy: number, bytes });
  if (!random.once(5)) calls.push({ op: 'copy-end', copy: number, checksum }, { op: 'copy-map', first, version });
  return calls;
}

/** Makes a page with random keys and values. Sometimes its header has slots or positions that a page cannot have. */
function recordOf(random: Random, { pageSize, pageBytes }: PagesMaker): Buffer {
  const words = [random.below(2 ** pageSize), random.below(2 ** pageSize)];
  for (let slot = 0; slot < pageSize; slot++) words.push(random.below(64));
  if (random.once(6)) words[random.below(words.length)] = hostileWord(random);
  const head = Buffer.from(Uint32Array.from(words).buffer);
  return Buffer.concat([head, bytesOf(random, pageBytes)]);
}

function bytesOf(random: Random, length: number): Buffer {
  return Buffer.alloc(length, Buffer.from(Uint32Array.of(random.u32(), random.u32(), random.u32()).buffer));
}
