import type { Command } from '../command.ts';
import { answer } from './answer.ts';
import { backup, restore } from './backup.ts';
import { bench } from './bench.ts';
import { build } from './build.ts';
import { completion } from './completion.ts';
import { demo } from './demo.ts';
import { deploy } from './deploy.ts';
import { dev } from './dev.ts';
import { doctor } from './doctor.ts';
import { filesGet, filesList, filesPut } from './files.ts';
import { list, versions } from './functions.ts';
import { gpuHostsDrain, gpuHostsList, gpuHostsUndrain } from './gpu-hosts.ts';
import { graph } from './graph.ts';
import { attach, cancel, status } from './invocations.ts';
import { invoke } from './invoke.ts';
import { join } from './join.ts';
import { keysCreate, keysList, keysRemove, keysRotate } from './keys.ts';
import { logs } from './logs.ts';
import { machinesDrain, machinesList, machinesRemove, machinesToken, machinesUndrain } from './machines.ts';
import { mcp } from './mcp.ts';
import { modelsList, modelsPull } from './models.ts';
import { create } from './new.ts';
import { ps } from './ps.ts';
import { quarantineLift } from './quarantine.ts';
import { quotaList, quotaSet } from './quota.ts';
import { aliasList, aliasRemove, aliasSet, remove, rollback } from './releases.ts';
import { replay } from './replay.ts';
import { scheduleCreate, scheduleList, scheduleRemove } from './schedule.ts';
import { secretsList, secretsRemove, secretsSet } from './secrets.ts';
import {
  audit,
  tenantsCreate,
  tenantsList,
  tenantsResume,
  tenantsSet,
  tenantsShow,
  tenantsSuspend,
} from './tenants.ts';
import { up } from './up.ts';
import { usage } from './usage.ts';
import { webhooksSecret } from './webhooks.ts';

/** All commands, in the order of the help. */
export const commands: readonly Command[] = [
  up,
  join,
  demo,
  create,
  dev,
  deploy,
  invoke,
  list,
  logs,
  ps,
  attach,
  status,
  cancel,
  answer,
  replay,
  mcp,
  filesList,
  filesGet,
  filesPut,
  versions,
  aliasList,
  aliasSet,
  aliasRemove,
  rollback,
  remove,
  quarantineLift,
  quotaList,
  quotaSet,
  usage,
  scheduleList,
  scheduleCreate,
  scheduleRemove,
  secretsList,
  secretsSet,
  secretsRemove,
  webhooksSecret,
  keysList,
  keysCreate,
  keysRotate,
  keysRemove,
  tenantsList,
  tenantsCreate,
  tenantsShow,
  tenantsSet,
  tenantsSuspend,
  tenantsResume,
  audit,
  machinesList,
  machinesToken,
  machinesDrain,
  machinesUndrain,
  machinesRemove,
  backup,
  restore,
  gpuHostsList,
  gpuHostsDrain,
  gpuHostsUndrain,
  build,
  graph,
  modelsPull,
  modelsList,
  doctor,
  bench,
  // Made from the other commands.
  completion(() => commands),
];
