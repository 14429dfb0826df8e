import { leb, nameBytes, Reader } from '#runtime/build/wasm/binary.ts';
import type { Random } from '../../harness/random.ts';
import { codeSection, withOtherCode } from './mutate-code.ts';
import type { Seed } from './seeds.ts';
import { isNested, putTogether, type Structure, takeApart } from './structure.ts';

/** Inputs of a mutation besides the structure that it mutates: random numbers, and the structure of another seed. */
interface Context {
  readonly random: Random;
  readonly other: Structure;
}

type Mutation = (structure: Structure, context: Context) => Uint8Array;

/** Names with a meaning in JavaScript, in the platform or in the canonical ABI. */
const NAMES = [
  ...['__proto__', 'constructor', 'then', 'toString', '', 'prototype', 'pie_fuel', 'pie_yield', 'memory', 'run'],
  ...['cabi_realloc', '[async-lift]run', '[callback][async-lift]run', '[task-return]run', '$root', '[export]$root'],
  ...['pie:inferlet/runtime@0.1.0', 'pie:inferlet/queue@0.1.9', '[method]queue.synchronize', '[resource-drop]queue'],
  ...[
    '[future-read-0]sleep',
    '[context-get-9]',
    '[thread-yield]',
    '0',
    '$imports',
    'actual',
    '\u2028',
    'x'.repeat(300),
  ],
];
/** Bytes that are opcodes, types, counts at a bound, or LEB128 continuations. */
const BYTES = [
  0x00, 0x01, 0x02, 0x03, 0x05, 0x0b, 0x0c, 0x10, 0x12, 0x1f, 0x40, 0x41, 0x60, 0x6f, 0x70, 0x7e, 0x7f, 0x80, 0xfc,
  0xfe, 0xff,
];
const COUNTS = [0, 1, 2, 127, 128, 16_384, 65_536, 1_000_000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
const MAX_EDITS = 6;
/** Ids of sections of a core module. */
const [TYPE, EXPORT, CODE, DATA] = [1, 7, 10, 11];

/** Ways to spoil one level of a component. Each function returns the new bytes. */
const MUTATIONS: Readonly<Record<string, Mutation>> = {
  'a flipped bit': (structure, { random }) =>
    inPart(structure, random, (body) => {
      const at = random.below(body.length);
      body[at] = (body[at] ?? 0) ^ (1 << random.below(8));
      return body;
    }),
  'some foreign bytes': (structure, { random }) => inPart(structure, random, (body) => foreignBytes(body, random)),
  'bytes cut out': (structure, { random }) =>
    inPart(structure, random, (body) => {
      const at = random.below(body.length);
      return Buffer.concat([body.subarray(0, at), body.subarray(at + 1 + random.below(8))]);
    }),
  'bytes put in': (structure, { random }) =>
    inPart(structure, random, (body) => {
      const at = random.below(body.length + 1);
      return Buffer.concat([
        body.subarray(0, at),
        Uint8Array.from(random.list(1 + random.below(6), () => random.pick(BYTES))),
        body.subarray(at),
      ]);
    }),
  'a foreign count': (structure, { random }) =>
    inPart(structure, random, (body) => Buffer.concat([Uint8Array.from(leb(random.pick(COUNTS))), body.subarray(1)])),
  'a foreign name': (structure, { random }) => inPart(structure, random, (body) => withName(body, random)),
  'other code': (structure, { random }) => inPart(structure, random, (body) => withOtherCode(body, random), CODE),
  'other bodies': (structure, { random }) => inPart(structure, random, (body) => withBodies(body, random), CODE),
  'other types': (structure, { random }) => inPart(structure, random, (body) => foreignBytes(body, random), TYPE),
  'other exports': (structure, { random }) => inPart(structure, random, (body) => foreignBytes(body, random), EXPORT),
  'other data': (structure, { random }) => inPart(structure, random, (body) => foreignBytes(body, random), DATA),
  'a section twice': ({ header, parts }, { random }) => {
    const at = random.below(parts.length);
    return putTogether({ header, parts: [...parts.slice(0, at + 1), ...parts.slice(at)] });
  },
  'a section left out': ({ header, parts }, { random }) => {
    const at = random.below(parts.length);
    return putTogether({ header, parts: parts.filter((_, i) => i !== at) });
  },
  'sections in another order': ({ header, parts }, { random }) => {
    const moved = [...parts];
    const [part] = moved.splice(random.below(moved.length), 1);
    if (part) moved.splice(random.below(moved.length + 1), 0, part);
    return putTogether({ header, parts: moved });
  },
  'another kind of section': ({ header, parts }, { random }) => {
    const at = random.below(parts.length);
    const changed = parts.map((part, i) => (i === at ? { ...part, id: random.below(16) } : part));
    return putTogether({ header, parts: changed });
  },
  'a section of another component': ({ header, parts }, { random, other }) => {
    const foreign = random.pick(other.parts);
    const same = parts.findIndex(({ id }) => id === foreign.id);
    const at = same < 0 ? random.below(parts.length) : same;
    return putTogether({ header, parts: parts.map((part, i) => (i === at ? foreign : part)) });
  },
  'a custom section': ({ header, parts }, { random }) => {
    const names = [
      'name',
      'producers',
      'component-name',
      'dylink.0',
      'metadata.code.branch_hint',
      'pie-source',
      random.pick(NAMES),
    ];
    const junk = random.list(random.below(64), () => random.below(256));
    const custom = { id: 0, body: Uint8Array.from([...nameBytes(random.pick(names)), ...junk]) };
    const at = random.below(parts.length + 1);
    return putTogether({ header, parts: [...parts.slice(0, at), custom, ...parts.slice(at)] });
  },
  'a long LEB128': (structure, { random }) => {
    const at = random.below(structure.parts.length);
    return putTogether(structure, ({ body }, i) => (i === at ? longLeb(body.length, random) : leb(body.length)));
  },
  'a lie about a size': (structure, { random }) => {
    const at = random.below(structure.parts.length);
    const lie = (length: number) => (random.once(2) ? random.pick(COUNTS) : Math.max(0, length + random.below(9) - 4));
    return putTogether(structure, ({ body }, i) => leb(i === at ? lie(body.length) : body.length));
  },
  truncated: (structure, { random }) => {
    const bytes = putTogether(structure);
    return bytes.subarray(0, random.below(bytes.length));
  },
  'bytes behind the end': (structure, { random }) =>
    Buffer.concat([
      putTogether(structure),
      Uint8Array.from(random.list(1 + random.below(40), () => random.pick(BYTES))),
    ]),
  'another header': ({ header, parts }, { random }) => {
    const changed = Uint8Array.from(header);
    changed[random.below(8)] = random.pick(BYTES);
    return putTogether({ header: changed, parts });
  },
};

/** The mutation that is chosen most often: most of its mutants validate and therefore run. */
const USUALLY_VALID = 'other code';

/** A mutant with its seed and mutations. */
export interface Mutant {
  readonly bytes: Uint8Array;
  readonly seed: string;
  readonly mutations: readonly string[];
}

/** Maximum number of attempts to find a mutation that fits. */
const MAX_ATTEMPTS = 20;
/** One in this many mutants comes from a seed with a JavaScript engine. */
const ENGINE_EVERY = 100;

/** Makes the next mutant; equal states of the generator give equal bytes. */
export function mutant(seeds: readonly Seed[], random: Random): Mutant {
  const wantsEngine = random.once(ENGINE_EVERY);
  const choices = seeds.filter((seed) => seed.hasEngine === wantsEngine);
  const seed = random.pick(choices);
  let { bytes } = seed;
  const mutations: string[] = [];
  const mutationCount = random.pick([1, 1, 1, 2, 3]);
  for (let attempts = MAX_ATTEMPTS; mutations.length < mutationCount && attempts > 0; attempts--) {
    const name = random.once(3) ? USUALLY_VALID : random.pick(Object.keys(MUTATIONS));
    const other = random.pick(choices).bytes;
    try {
      bytes = mutateInside(bytes, other, name, random);
      mutations.push(name);
    } catch {
      // The mutation does not fit: the component lacks the section, or an earlier mutation spoilt its structure.
      if (mutations.length > 0) break;
    }
  }
  return { bytes, seed: seed.name, mutations };
}

/** Mutates the component or, more often, one of the core modules inside it. */
function mutateInside(bytes: Uint8Array, other: Uint8Array, name: string, random: Random): Uint8Array {
  const structure = takeApart(bytes);
  const nested = structure.parts.flatMap((part, index) => (isNested(part) ? [index] : []));
  if (nested.length === 0 || (name !== USUALLY_VALID && random.once(3))) {
    return MUTATIONS[name]?.(structure, { random, other: takeApart(other) }) ?? bytes;
  }
  // Mutate mostly the first nested module, the guest: the others only link it.
  const at = random.once(4) ? random.pick(nested) : (nested[0] ?? 0);
  const foreign = takeApart(other).parts.find(isNested)?.body ?? other;
  const parts = structure.parts.map((part, index) =>
    index === at ? { ...part, body: mutateInside(part.body, foreign, name, random) } : part,
  );
  return putTogether({ header: structure.header, parts });
}

/** Changes the body of one part, of the wanted kind if the structure has one. */
function inPart(
  structure: Structure,
  random: Random,
  change: (body: Uint8Array) => Uint8Array,
  kind?: number,
): Uint8Array {
  const nonEmpty = structure.parts.flatMap((part, index) => (part.body.length > 0 ? [index] : []));
  const ofKind = nonEmpty.filter((index) => structure.parts[index]?.id === kind);
  const at = random.pick(ofKind.length > 0 ? ofKind : nonEmpty);
  const parts = structure.parts.map((part, index) =>
    index === at ? { ...part, body: change(Uint8Array.from(part.body)) } : part,
  );
  return putTogether({ header: structure.header, parts });
}

function foreignBytes(body: Uint8Array, random: Random): Uint8Array {
  for (let edits = 1 + random.below(MAX_EDITS); edits > 0; edits--)
    body[random.below(body.length)] = random.pick(BYTES);
  return body;
}

/** Replaces a name, which is a length followed by as many printable characters. */
function withName(body: Uint8Array, random: Random): Uint8Array {
  const nameOffsets: number[] = [];
  for (let at = 0; at < body.length; at++) {
    const length = body[at] ?? 0;
    if (length < 3 || length > 100 || at + length >= body.length) continue;
    if (body.subarray(at + 1, at + 1 + length).every((byte) => byte >= 32 && byte < 127)) nameOffsets.push(at);
  }
  if (nameOffsets.length === 0) return foreignBytes(body, random);
  const at = random.pick(nameOffsets);
  const afterName = at + 1 + (body[at] ?? 0);
  return Buffer.concat([
    body.subarray(0, at),
    Uint8Array.from(nameBytes(random.pick(NAMES))),
    body.subarray(afterName),
  ]);
}

/** Changes bytes of some functions and keeps their sizes correct, or replaces one function with another. */
function withBodies(body: Uint8Array, random: Random): Uint8Array {
  const reader = new Reader(body);
  const count = reader.u32();
  const bodies: Uint8Array[] = [];
  for (let i = 0; i < count; i++) {
    const { at, end } = reader.slice(reader.u32());
    bodies.push(body.slice(at, end));
  }
  if (random.once(4)) bodies[random.below(count)] = random.pick(bodies);
  else {
    for (let edits = 1 + random.below(MAX_EDITS); edits > 0; edits--) {
      const chosen = random.pick(bodies);
      chosen[random.below(chosen.length)] = random.once(2) ? random.pick(BYTES) : random.below(256);
    }
  }
  return codeSection(bodies);
}

/** LEB128 of `value` with more bytes than it needs, possibly more than the format allows. */
function longLeb(value: number, random: Random): number[] {
  const bytes = leb(value);
  const last = bytes.length - 1;
  bytes[last] = (bytes[last] ?? 0) | 128;
  for (let extraBytes = random.below(6); extraBytes > 0; extraBytes--) bytes.push(128);
  return [...bytes, 0];
}
