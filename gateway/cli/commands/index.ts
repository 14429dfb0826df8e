import type { Command } from '../command.ts';

type Load = () => Promise<readonly Command[]>;

/** All commands by their first words, in the order of the help. */
const BY_FIRST_WORD: readonly (readonly [word: string, load: Load])[] = [
  ['up', () => import('./platform.ts').then(({ up }) => [up])],
  ['join', () => import('./machines.ts').then(({ join }) => [join])],
  ['demo', () => import('./demo.ts').then(({ demo }) => [demo])],
  ['new', () => import('./project.ts').then(({ create }) => [create])],
  ['dev', () => import('./project.ts').then(({ dev }) => [dev])],
  ['deploy', () => import('./deploy.ts').then(({ deploy }) => [deploy])],
  ['invoke', () => import('./invoke.ts').then(({ invoke }) => [invoke])],
  ['list', () => import('./functions.ts').then(({ list }) => [list])],
  ['logs', () => import('./invocations.ts').then(({ logs }) => [logs])],
  ['ps', () => import('./invocations.ts').then(({ ps }) => [ps])],
  ['attach', () => import('./invocations.ts').then(({ attach }) => [attach])],
  ['status', () => import('./invocations.ts').then(({ status }) => [status])],
  ['cancel', () => import('./invocations.ts').then(({ cancel }) => [cancel])],
  ['answer', () => import('./invoke.ts').then(({ answer }) => [answer])],
  ['replay', () => import('./invoke.ts').then(({ replay }) => [replay])],
  ['mcp', () => import('./mcp.ts').then(({ mcp }) => [mcp])],
  ['files', () => import('./files.ts').then((of) => [of.filesList, of.filesGet, of.filesPut])],
  ['versions', () => import('./functions.ts').then(({ versions }) => [versions])],
  ['alias', () => import('./functions.ts').then((of) => [of.aliasList, of.aliasSet, of.aliasRemove])],
  ['rollback', () => import('./functions.ts').then(({ rollback }) => [rollback])],
  ['remove', () => import('./functions.ts').then(({ remove }) => [remove])],
  ['quarantine', () => import('./functions.ts').then(({ quarantineLift }) => [quarantineLift])],
  ['quota', () => import('./tenants.ts').then(({ quotaList, quotaSet }) => [quotaList, quotaSet])],
  ['usage', () => import('./tenants.ts').then(({ usage }) => [usage])],
  [
    'schedule',
    () =>
      import('./schedule.ts').then((of) => [of.scheduleList, of.scheduleCreate, of.scheduleResume, of.scheduleRemove]),
  ],
  ['secrets', () => import('./tenants.ts').then((of) => [of.secretsList, of.secretsSet, of.secretsRemove])],
  ['webhooks', () => import('./tenants.ts').then(({ webhooksSecret }) => [webhooksSecret])],
  ['keys', () => import('./tenants.ts').then((of) => [of.keysList, of.keysCreate, of.keysRotate, of.keysRemove])],
  ['tenants', () => import('./tenants.ts').then(tenantCommands)],
  ['audit', () => import('./tenants.ts').then(({ audit }) => [audit])],
  ['machines', () => import('./machines.ts').then(machineCommands)],
  ['backup', () => import('./platform.ts').then(({ backup }) => [backup])],
  ['restore', () => import('./platform.ts').then(({ restore }) => [restore])],
  ['gpu-hosts', () => import('./machines.ts').then((of) => [of.gpuHostsList, of.gpuHostsDrain, of.gpuHostsUndrain])],
  ['build', () => import('./functions.ts').then(({ build }) => [build])],
  ['graph', () => import('./functions.ts').then(({ graph }) => [graph])],
  ['models', () => import('./platform.ts').then(({ modelsPull, modelsList }) => [modelsPull, modelsList])],
  ['doctor', () => import('./platform.ts').then(({ doctor }) => [doctor])],
  ['bench', () => import('./platform.ts').then(({ bench }) => [bench])],
  // Its scripts contain all commands, so it gets the function that loads them.
  ['completion', () => import('./completion.ts').then(({ completion }) => [completion(allCommands)])],
];

const tenantCommands = (of: typeof import('./tenants.ts')): readonly Command[] => [
  of.tenantsList,
  of.tenantsCreate,
  of.tenantsShow,
  of.tenantsSet,
  of.tenantsSuspend,
  of.tenantsResume,
];

const machineCommands = (of: typeof import('./machines.ts')): readonly Command[] => [
  of.machinesList,
  of.machinesToken,
  of.machinesDrain,
  of.machinesUndrain,
  of.machinesRemove,
];

/** All commands, in the order of the help. */
export async function allCommands(): Promise<readonly Command[]> {
  return (await Promise.all(BY_FIRST_WORD.map(([, load]) => load()))).flat();
}

/**
 * The commands that a command line may mean: those of its first word, else all. Loading all takes three times as long as loading one, and
 * longer than most commands run.
 */
export async function commandsFor([first]: readonly string[]): Promise<readonly Command[]> {
  const [, load = allCommands] = BY_FIRST_WORD.find(([word]) => word === first) ?? [];
  return load();
}
