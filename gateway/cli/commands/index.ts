import type { Command } from '../command.ts';
import { bench } from './bench.ts';
import { build } from './build.ts';
import { completion } from './completion.ts';
import { deploy } from './deploy.ts';
import { dev } from './dev.ts';
import { doctor } from './doctor.ts';
import { filesGet, filesList, filesPut } from './files.ts';
import { list, logs, remove, versions } from './functions.ts';
import { attach, cancel, status } from './invocations.ts';
import { invoke } from './invoke.ts';
import { modelsList, modelsPull } from './models.ts';
import { create } from './new.ts';
import { up } from './up.ts';

/** Every command, in the order in which help shows them. */
export const commands: readonly Command[] = [
  up,
  create,
  dev,
  deploy,
  invoke,
  list,
  logs,
  attach,
  status,
  cancel,
  filesList,
  filesGet,
  filesPut,
  versions,
  remove,
  build,
  modelsPull,
  modelsList,
  doctor,
  bench,
  // Made of the others.
  completion(() => commands),
];
