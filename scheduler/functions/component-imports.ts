/** Reads the imports of a component, or of a script, of the platform from its bytes, without compiling anything. Pure; runs in workerd too. */
import { isScript, readScriptFile, ScriptFileError } from './script-file.ts';

/** Id of a component's import sections (Component Model, Binary.md). */
const IMPORT_SECTION = 10;
const PREAMBLE_BYTES = 8;
/** The kind byte of the description that follows an import's name. */
const KIND = { core: 0, function: 1, value: 2, type: 3, component: 4, instance: 5 } as const;
/** Maximum imports that are read, and maximum bytes of a name. Components of real programs have far fewer. */
const MAX_IMPORTS = 10_000;
const MAX_NAME_BYTES = 1024;
const TEXT_DECODER = new TextDecoder();
const PLATFORM_INTERFACE = /^pie:inferlet\/([a-z0-9-]+)@/;

/**
 * The interfaces of Pie's contract that a component imports, such as `forward`, in the component's order. Unreadable bytes end the list;
 * the build decides whether the bytes are a component at all.
 */
export function importedInterfaces(component: Uint8Array): string[] {
  if (isScript(component)) return scriptImports(component);
  const interfaceNames = new Set<string>();
  const budget = { imports: MAX_IMPORTS };
  try {
    const reader = new ByteReader(component, PREAMBLE_BYTES, component.length);
    while (!reader.done) {
      const id = reader.byte();
      const body = reader.slice(reader.number());
      if (id === IMPORT_SECTION) readImports(body, interfaceNames, budget);
    }
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
  }
  return [...interfaceNames];
}

function scriptImports(script: Uint8Array): string[] {
  try {
    return [...readScriptFile(script).header.imports];
  } catch (error) {
    if (!(error instanceof ScriptFileError)) throw error;
    return [];
  }
}

function readImports(body: ByteReader, interfaceNames: Set<string>, budget: { imports: number }): void {
  for (let remainingCount = body.number(); remainingCount > 0; remainingCount--) {
    budget.imports -= 1;
    if (budget.imports < 0) throw new RangeError('too many imports');
    // 0 marks a plain name, 1 (older) the name of an interface, 2 a name that a version follows.
    const form = body.byte();
    const name = body.text();
    if (form === 2) body.text();
    const match = PLATFORM_INTERFACE.exec(name)?.[1];
    if (match !== undefined) interfaceNames.add(match);
    skipDescription(body);
  }
}

/**
 * Skips a description: a kind byte and an index. A core module has one more byte before its index; a type or a value has a bound there.
 * After the bound `sub resource` of a type, there is no index.
 */
function skipDescription(body: ByteReader): void {
  const kind = body.byte();
  if (kind === KIND.core) body.byte();
  if (kind === KIND.type || kind === KIND.value) {
    const bound = body.byte();
    if (kind === KIND.value || bound === 0) body.number();
    return;
  }
  body.number();
}

/** Reads a range of a component's bytes in order. Reads past its end throw RangeError. */
class ByteReader {
  readonly #bytes: Uint8Array;
  #offset: number;
  readonly #end: number;

  constructor(bytes: Uint8Array, offset: number, end: number) {
    if (offset > end || end > bytes.length) throw new RangeError('past the end');
    this.#bytes = bytes;
    this.#offset = offset;
    this.#end = end;
  }

  get done(): boolean {
    return this.#offset >= this.#end;
  }

  byte(): number {
    const value = this.#offset < this.#end ? this.#bytes[this.#offset++] : undefined;
    if (value === undefined) throw new RangeError('past the end');
    return value;
  }

  /** An unsigned LEB128 of 32 bits. */
  number(): number {
    let value = 0;
    for (let shift = 0; shift < 35; shift += 7) {
      const byte = this.byte();
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    throw new RangeError('no number of 32 bits');
  }

  slice(length: number): ByteReader {
    const start = this.#offset;
    this.#offset += length;
    // A section may claim to be longer than the component. Its end then becomes `#end + 1`, which the constructor refuses.
    return new ByteReader(this.#bytes, start, Math.min(this.#offset, this.#end + 1));
  }

  text(): string {
    const length = this.number();
    const start = this.#offset;
    if (length > MAX_NAME_BYTES || start + length > this.#end) throw new RangeError('past the end');
    this.#offset += length;
    return TEXT_DECODER.decode(this.#bytes.subarray(start, this.#offset));
  }
}
