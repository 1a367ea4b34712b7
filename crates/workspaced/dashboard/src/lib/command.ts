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

/** What prepares a command and says nothing of what it does. */
const PLUMBING = /^(?:cd|export|set|source|\.|git apply|patch|cat\s*>|tee)(?:\s|$)/;

/** A command in one line: without the texts that are given to it, the patches that it applies first, and where unittest looks for tests. */
export function shortened(text: string): string {
  const lines = text.split("\n");
  const kept: string[] = [];
  for (let index = 0; index < lines.length; index += 1) {
    kept.push(lines[index]);
    const end = /<<-?\s*(["']?)(\w+)\1/.exec(lines[index])?.[2];
    const last = end === undefined ? -1 : lines.findIndex((line, at) => at > index && line.trim() === end);
    if (last >= 0) index = last;
  }
  const parts = kept.join("\n").split(/\s*(?:&&|;|\n)\s*/).map((part) => part.trim()).filter(Boolean);
  const telling = parts.filter((part) => !PLUMBING.test(part) && !/^#/.test(part));
  return (telling.length ? telling : parts).join(" && ").replace(/( -m unittest) discover(?: -[stp] \S+)*/, "$1");
}

/** The address of what a command has printed, if it was kept. */
export function outputOf(record: AuditRecord): string | undefined {
  const command = commandOf(record);
  const kept = command?.outputSha256 && !command.outputRefused ? `artifact://${record.runId}/sha256/${command.outputSha256}` : undefined;
  return [...record.artifactUris, command?.output, kept].find((uri) => uri?.includes("/sha256/"));
}
