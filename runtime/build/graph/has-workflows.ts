import { resolve } from 'node:path';
import type { Source } from '../component/source.ts';

/** True if the bundle contains the library's workflow module. `files` are the bundle's files, relative to the project. */
export const hasWorkflows = ({ directory }: Pick<Source, 'directory'>, files: readonly string[]): boolean =>
  files.some((file) =>
    /(functions\/sdk\/src|@pie\/inferlet\/(dist|src))\/workflow\/index\.[jt]s$/.test(resolve(directory, file)),
  );
