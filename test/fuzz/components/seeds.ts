import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { brotliDecompress } from 'node:zlib';
import { wrapModule } from '#runtime/build/native/wrap.ts';
import { testComponent } from '#runtime/testing/components.ts';
import { COUNTING } from '#runtime/testing/guests.ts';
import type { AttackClass } from '#test/hostile/attack.ts';
import { CORPUS } from '#test/hostile/corpus/index.ts';
import { attackBytes } from '#test/hostile/guest.ts';

/** A valid component to make mutants from. */
export interface Seed {
  readonly name: string;
  readonly bytes: Uint8Array;
  /** True when the component contains a JavaScript engine; building its mutants takes a hundred times as long. */
  readonly hasEngine: boolean;
}

/** Classes of the hostile corpus with small guests that call the host in many ways. */
const CLASSES: readonly AttackClass[] = ['handles', 'realloc', 'results', 'control', 'tables', 'floods', 'lists'];
const MAX_GUEST_BYTES = 64 * 1024;

/** Components of `test/hostile`, `functions`, `test/compat` and `runtime/testing`, in a fixed order. */
export async function readSeeds(): Promise<Seed[]> {
  const small = CORPUS.filter(({ kind }) => CLASSES.includes(kind));
  const guests = await Promise.all(
    small.map(async ({ name, source }) => ({ name, bytes: await attackBytes(source()), hasEngine: false })),
  );
  const nativeModule = await readFile(new URL('../../../functions/native-completion/main.wasm', import.meta.url));
  const packed = await readFile(new URL('../../compat/0.1.0/text-completion.wasm.br', import.meta.url));
  return [
    ...guests.filter(({ bytes }) => bytes.length <= MAX_GUEST_BYTES),
    { name: 'functions/native-completion', bytes: await wrapModule(nativeModule), hasEngine: false },
    { name: 'test/compat/text-completion', bytes: await promisify(brotliDecompress)(packed), hasEngine: true },
    { name: 'runtime/testing/counting', bytes: await testComponent(COUNTING), hasEngine: true },
  ];
}
