import path from 'node:path';

/**
 * Names the folder in which the processes of this machine keep compiled code: the folder of the command line (`gateway/cli/bin.js`). A folder
 * that the environment already names, as with `npm start`, stays. Runtimes and sandboxes have folders of their own in it
 * (`runtime/permissions.ts`).
 */
export function keepCompiledCode(environment: NodeJS.ProcessEnv): void {
  const { XDG_CACHE_HOME, HOME } = environment;
  const caches = XDG_CACHE_HOME || (HOME && path.join(HOME, '.cache'));
  // Node does without a folder that it cannot write.
  if (caches) environment.NODE_COMPILE_CACHE ??= path.join(caches, 'pie', 'compile');
}
