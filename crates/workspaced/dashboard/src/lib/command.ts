/** What a record says of a command. */

import type { AuditRecord, CommandData } from "./types.ts";

/** Returns what a record says of the command that it is about; nothing if it is about none. */
export function commandOf(record: AuditRecord): CommandData | undefined {
  const isCommand = record.tool === "run_command" || record.tool === "event.command" || record.tool === "event.test";
  const data = record.input?.data;
  return isCommand && typeof data === "object" && data !== null ? (data as CommandData) : undefined;
}

/** Whether a command has ended, and badly. */
export function isFailed({ exitCode, signal, timedOut }: CommandData): boolean {
  return timedOut === true || signal !== undefined || (exitCode !== undefined && exitCode !== 0);
}

/** How a command has ended, in two words; nothing if it has not. */
export function ended(command: CommandData): string | undefined {
  if (command.timedOut) return "timed out";
  if (command.signal !== undefined) return `signal ${command.signal}`;
  return command.exitCode === undefined ? undefined : `exit ${command.exitCode}`;
}

/** A command as it was typed: of a shell what it was given. */
export function typed({ command, argv }: CommandData): string | undefined {
  if (command !== undefined || !argv) return command;
  const [shell, flag, script] = argv;
  return argv.length === 3 && /(^|\/)(ba|da|z)?sh$/.test(shell) && /^-\w*c$/.test(flag) ? script : argv.join(" ");
}

/** The address of what a command has printed, if it was kept. */
export function outputOf(record: AuditRecord): string | undefined {
  const command = commandOf(record);
  const kept = command?.outputSha256 && !command.outputRefused ? `artifact://${record.runId}/sha256/${command.outputSha256}` : undefined;
  return [...record.artifactUris, command?.output, kept].find((uri) => uri?.includes("/sha256/"));
}
