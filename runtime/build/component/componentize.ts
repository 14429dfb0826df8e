import { mkdtemp, rm } from 'node:fs/promises';
import { SourceMap } from 'node:module';
import { join } from 'node:path';
import { componentize as run } from 'componentize-qjs';
import type { Diagnostic } from '../failure-schema.ts';
import { BuildError } from '../outcome.ts';
import {
  leb,
  Reader,
  readSections,
  SECTION,
  type Section,
  signedLeb,
  Writer,
  withSection,
  writeSections,
} from '../wasm/binary.ts';
import type { Bundle } from './bundle.ts';
import { writeContract } from './contract.ts';

/** A place in the bundle, as the engine's stack traces write it. */
const PLACE = /componentize-qjs:user\.js:(\d+):(\d+)/;

/**
 * Compiles a bundle into a component that contains the QuickJS engine. The compiler, componentize-qjs, evaluates the module in a sandbox
 * and snapshots its state. Throws BuildError with the place in the source when the module cannot be evaluated.
 * @param directory folder for the compiler's temporary input
 */
export async function componentize(bundle: Bundle, directory: string): Promise<Uint8Array> {
  const scratch = await mkdtemp(join(directory, '.contract-'));
  try {
    const witPath = await writeContract(bundle.interfaces, scratch);
    return await withEngine(witPath, bundle.code);
  } catch (error) {
    throw explain(error instanceof Error ? error.message : String(error), bundle);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/**
 * Makes a component from the QuickJS engine in its state after it has evaluated a module. The engine is optimised for size, which saves 0.55 of
 * 1.9 MB but costs speed: pure computation takes 1.2 to 1.6 times as long, and a waiting call takes 7 µs, not 5 (`runtime/lowering/bench.ts`).
 * These 2 µs are little beside a device step of a few ms.
 */
export async function withEngine(witPath: string, jsSource: string): Promise<Uint8Array> {
  const { component } = await run({ witPath, world: 'inferlet', jsSource, stubWasi: true, optSize: true });
  return slim(component);
}

function explain(message: string, bundle: Bundle): BuildError {
  const call = /unknown import: `pie:inferlet\/([\w-]+)@[^#]+#([^`]+)`/.exec(message);
  if (call) {
    return new BuildError(
      'build-failed',
      `The module calls ${call[1]} ${call[2]} while it loads.`,
      'Modules are evaluated once, at build time, without a host: move the call into run().',
    );
  }
  if (message.includes('call stack exhausted')) {
    return new BuildError(
      'build-failed',
      'The module recurses without end while it loads.',
      'Modules are evaluated once, at build time: move the work into run().',
    );
  }
  if (message.includes('blocking on a promise')) {
    return new BuildError(
      'build-failed',
      'The module awaits a promise at its top level that never settles.',
      'Modules are evaluated once, at build time, without a host: await inside run().',
    );
  }
  const text =
    /(?:evaluation|module): (?:Error: )?([^\n]*)/s.exec(
      message.replace(/^.*user JavaScript module: /s, 'module: '),
    )?.[1] ?? message;
  const diagnostic = placeOf(message, text.replace(/^Failed to [^:]*: (Error: )?/, ''), bundle);
  const faultText = diagnostic
    ? `${diagnostic.file}:${diagnostic.line}:${diagnostic.column}: ${diagnostic.text}`
    : text;
  return new BuildError(
    'build-failed',
    `The module fails while it loads: ${faultText}`,
    'Modules are evaluated once, at build time: correct the source at that place, or move the work into run().',
    diagnostic ? [diagnostic] : [],
  );
}

/** The place in the user's files where the engine stopped; null when the message names none. */
function placeOf(message: string, text: string, bundle: Bundle): Diagnostic | null {
  const match = PLACE.exec(message);
  if (!match) return null;
  const payload = JSON.parse(bundle.map) as { sourcesContent?: (string | null)[]; sources: string[] };
  const entry = new SourceMap(payload as ConstructorParameters<typeof SourceMap>[0]).findEntry(
    Number(match[1]) - 1,
    Number(match[2]) - 1,
  );
  if (!('originalLine' in entry)) return null;
  const { originalSource, originalLine, originalColumn } = entry;
  const content = payload.sourcesContent?.[payload.sources.indexOf(originalSource)] ?? '';
  return {
    file: originalSource,
    line: originalLine + 1,
    column: originalColumn + 1,
    text,
    source: content.split('\n')[originalLine] ?? '',
  };
}

/** Custom sections that only people and debuggers read. */
const DEBUG_SECTIONS: ReadonlySet<string> = new Set([
  'name',
  'component-name',
  'producers',
  'target_features',
  '.dep-v0',
]);

/** Ids of sections of a component (Component Model, Binary Format). */
const CUSTOM = 0;
const CORE_MODULE = 1;
const COMPONENT = 4;

/** Bytes of a data segment at a constant address: ACTIVE, I32_CONST, the address, END, then the segment's length and content. */
const ACTIVE = 0x00;
const I32_CONST = 0x41;
const END = 0x0b;

/**
 * Removes internal names and the snapshot's freed memory from a component. The freed memory holds the compiler's garbage, with two copies
 * of the source. It makes up 10 % of a component with the QuickJS engine, and every instance would load it.
 */
export function slim(component: Uint8Array): Uint8Array {
  const out = new Writer(component.length);
  out.push(component.subarray(0, 8));
  const reader = new Reader(component, 8);
  while (!reader.done) {
    const id = reader.byte();
    const body = reader.slice(reader.u32());
    if (id === CUSTOM && DEBUG_SECTIONS.has(new Reader(component, body.at, body.end).name())) continue;
    const bytes = component.subarray(body.at, body.end);
    const slimmed = id === CORE_MODULE ? slimModule(bytes) : id === COMPONENT ? slim(bytes) : bytes;
    out.push([id, ...leb(slimmed.length)]);
    out.push(slimmed);
  }
  return out.bytes();
}

function slimModule(bytes: Uint8Array): Uint8Array {
  const sections = readSections(bytes).filter(
    ({ id, body }) => id !== SECTION.custom || !DEBUG_SECTIONS.has(new Reader(body).name()),
  );
  const image = imageOf(sections);
  if (!image) return writeSections(sections);
  wipeFreeChunks(image);
  return writeSections(withImage(sections, image));
}

/** The module's memory as its data section initialises it; null without a data section, or when a segment's place is not constant. */
function imageOf(sections: readonly Section[]): Uint8Array | null {
  const body = sections.find(({ id }) => id === SECTION.data)?.body;
  if (!body) return null;
  const reader = new Reader(body);
  const segments: { readonly at: number; readonly bytes: Uint8Array }[] = [];
  for (let left = reader.u32(); left > 0; left--) {
    if (reader.byte() !== ACTIVE || reader.byte() !== I32_CONST) return null;
    const at = reader.s33();
    if (at < 0 || reader.byte() !== END) return null;
    const { at: from, end } = reader.slice(reader.u32());
    segments.push({ at, bytes: body.subarray(from, end) });
  }
  const image = new Uint8Array(segments.reduce((end, { at, bytes }) => Math.max(end, at + bytes.length), 0));
  for (const { at, bytes } of segments) image.set(bytes, at);
  return image;
}

/** Bytes that the allocator uses at the beginning of a free chunk: the head, and the links in a list or tree. */
const CHUNK_HEAD = 32;

/**
 * Zeroes free chunks in the heap of dlmalloc (wasi-libc's allocator, Doug Lea, version 2.8). The word at offset 4 of a chunk is its size plus
 * the flags 1, "the previous chunk is in use", and 2, "this chunk is in use". A free chunk also has list links at offsets 8 and 12, and its size
 * again in the word behind it. Only a chunk whose size, flags and links all agree with those of its neighbours is zeroed.
 */
function wipeFreeChunks(image: Uint8Array): void {
  const view = new DataView(image.buffer, image.byteOffset, image.byteLength);
  const word = (at: number): number => (at >= 0 && at + 4 <= image.length ? view.getUint32(at, true) : 0);
  for (let at = 8; at + CHUNK_HEAD < image.length; at += 8) {
    const head = word(at + 4);
    const size = head - 1;
    // Flag 1 without flag 2: the previous chunk is in use, and this one is free.
    if ((head & 7) !== 1 || size <= CHUNK_HEAD || at + size + 8 > image.length) continue;
    // The word behind this chunk repeats its size. The next chunk has flag 2 without flag 1: it is in use, and this one is free.
    if (word(at + size) !== size || (word(at + size + 4) & 3) !== 2) continue;
    const [next, previous] = [word(at + 8), word(at + 12)];
    if (word(next + 12) !== at || word(previous + 8) !== at) continue;
    image.fill(0, at + CHUNK_HEAD, at + size);
    at += size - 8;
  }
}

/** Maximum data segments of one module: engines take no more than a hundred thousand. */
const MAX_SEGMENTS = 10_000;

/** Replaces the data section by segments that fill memory with `image`, without its long runs of zeros. */
function withImage(sections: readonly Section[], image: Uint8Array): Section[] {
  // The overhead of a segment in bytes: up to this number, storing the zeros is cheaper than a new segment.
  let gap = 8;
  let runs = runsOf(image, gap);
  while (runs.length > MAX_SEGMENTS) {
    gap *= 2;
    runs = runsOf(image, gap);
  }
  const writer = new Writer(image.length);
  writer.push(leb(runs.length));
  for (const { from, to } of runs) {
    writer.push([ACTIVE, I32_CONST, ...signedLeb(from), END, ...leb(to - from)]);
    writer.push(image.subarray(from, to));
  }
  const filled = withSection(sections, SECTION.data, writer.bytes());
  const hasDataCount = sections.some(({ id }) => id === SECTION.dataCount);
  return hasDataCount ? withSection(filled, SECTION.dataCount, Uint8Array.from(leb(runs.length))) : filled;
}

/** The parts of the image that remain without all stretches of more than `gap` zeros. */
function runsOf(image: Uint8Array, gap: number): { readonly from: number; readonly to: number }[] {
  const runs: { from: number; to: number }[] = [];
  let lastRun: { from: number; to: number } | undefined;
  for (let at = 0; at < image.length; at++) {
    if (image[at] === 0) continue;
    if (lastRun && at - lastRun.to <= gap) lastRun.to = at + 1;
    else {
      lastRun = { from: at, to: at + 1 };
      runs.push(lastRun);
    }
  }
  return runs;
}
