import { componentize as run } from 'componentize-qjs';
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
import { wipeFreeChunks } from '../wasm/free-chunks.ts';

/**
 * Makes a component from the QuickJS engine in its state after it has evaluated a module. The engine is optimised for size, which saves 0.55 of
 * 1.9 MB but costs speed: pure computation takes 1.2 to 1.6 times as long, and a waiting call takes 7 µs, not 5 (`runtime/lowering/bench.ts`).
 * These 2 µs are little beside a device step of a few ms.
 */
export async function withEngine(witPath: string, jsSource: string): Promise<Uint8Array> {
  const { component } = await run({ witPath, world: 'inferlet', jsSource, stubWasi: true, optSize: true });
  return slim(component);
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
