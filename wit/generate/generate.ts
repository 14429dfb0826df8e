import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { emitChannel } from './channel-emit.ts';
import { emitC } from './emit-c.ts';
import { emitGuest } from './emit-guest.ts';
import { emitHost } from './emit-host.ts';
import { emitQueueCalls } from './emit-queue-calls.ts';
import { emitReference, emitReferenceData } from './emit-reference.ts';
import { emitCargo, emitRust } from './emit-rust.ts';
import { emitWorld } from './emit-world.ts';
import { emitLowering } from './lowering/emit-lowering.ts';
import type { WitWorld } from './model.ts';
import { parse } from './parse.ts';
import { referenceOf } from './reference.ts';
import { resolve } from './resolve.ts';

/** The folder that holds the contract, `wit/`. */
export const WIT_DIRECTORY = fileURLToPath(new URL('..', import.meta.url));

/** Reads and resolves the world of `wit/*.wit`. */
export async function readWorld(directory = WIT_DIRECTORY, name = 'inferlet'): Promise<WitWorld> {
  return resolve(await parseFolder(directory), name);
}

/** Reads and resolves the channel's own interfaces, which use types of the contract. */
async function readChannel(): Promise<WitWorld> {
  const folders = [WIT_DIRECTORY, join(WIT_DIRECTORY, 'channel')];
  return resolve((await Promise.all(folders.map(parseFolder))).flat(), 'sandbox');
}

async function parseFolder(directory: string) {
  const files = (await readdir(directory)).filter((file) => file.endsWith('.wit')).sort();
  return Promise.all(files.map(async (file) => parse(file, await readFile(join(directory, file), 'utf8'))));
}

/**
 * The texts of the generated files, by path within `wit/`. They are committed, because they are needed before any build: the
 * documents name `pie.h` and `pie.rs`, which authors in C and Rust read, and all programs of the clone import the modules.
 */
export async function render(): Promise<ReadonlyMap<string, string>> {
  const world = await readWorld();
  const channel = await readChannel();
  const reference = referenceOf(world);
  return new Map([
    ['generated/Cargo.toml', emitCargo(world)],
    ['generated/channel.ts', emitChannel(world, channel)],
    ['generated/guest.d.ts', emitGuest(world)],
    ['generated/host.ts', emitHost(world)],
    ['generated/lowering.ts', emitLowering(world)],
    ['generated/pie.h', emitC(world)],
    ['generated/pie.rs', emitRust(world)],
    ['generated/queue-calls.ts', emitQueueCalls(world)],
    ['generated/reference.ts', emitReferenceData(reference)],
    ['generated/world.ts', emitWorld(world)],
    ['REFERENCE.md', emitReference(reference)],
  ]);
}

/** Writes `wit/generated` and the reference; returns the written paths. */
export async function generate(directory = WIT_DIRECTORY): Promise<string[]> {
  await mkdir(join(directory, 'generated'), { recursive: true });
  const paths: string[] = [];
  for (const [name, text] of await render()) {
    const path = join(directory, name);
    await writeFile(path, text);
    paths.push(path);
  }
  return paths;
}
