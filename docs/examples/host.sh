#!/usr/bin/env bash
# host.sh DIR COMMAND [ARG...]: a whole host of the protocol in front of one command. See docs/PROTOCOL.md.
#
# DIR/receipts is contain's; DIR/permits is ours: one file a job, there as long as the job may have a living process.
# TERM and INT cancel the job. Exits with the command's status, 128 and the signal for one that was killed, and 125
# where it has none. Needs bash 4.4 and coreutils; replies begin with their event, so that `case` can tell them apart.
set -euo pipefail

directory=$1
shift
uuid() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n' | sed -E 's/(.{8})(.{4})(.{4})(.{4})/\1-\2-\3-\4-/'; }
id=$(uuid)
permit_id=$(uuid)
token=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
permit=$directory/permits/$id.json
no_status=125
no_receipt=68 # from inspect: whatever can have run has a receipt

# string TEXT: TEXT as a JSON string. Bytes that are no UTF-8 may stay as they are.
string() {
  local LC_ALL=C text=$1
  text=${text//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\n'/\\n}
  text=${text//$'\r'/\\r}
  text=${text//$'\t'/\\t}
  if [[ $text == *[$'\001'-$'\037']* ]]; then
    echo "host.sh: an argument holds a control character that this example does not escape" >&2
    exit 64
  fi
  printf '"%s"' "$text"
}

# durable TEXT: TEXT as the permit's file, there and whole after a power loss: what step 4 of the flow asks for.
durable() {
  printf '%s\n' "$1" >"$permit.tmp"
  sync "$permit.tmp"
  mv "$permit.tmp" "$permit"
  sync "${permit%/*}"
}

# say FIELDS: one message. A wrapper that has ended is no error here: its last reply, or inspect, says how.
say() {
  { printf '{"id":"%s",%s}\n' "$id" "$1" >&"$to"; } 2>/dev/null || true
}

arguments=''
for text in "${@:2}"; do
  arguments+=${arguments:+,}$(string "$text")
done
request='"permitId":"'$permit_id'","token":"'$token'","command":'$(string "$1")',"args":['$arguments']'

mkdir -p "$directory/permits"
durable '{"id":"'"$id"'"}'
coproc WRAPPER { exec contain run "$directory/receipts"; }
exec {from}<&"${WRAPPER[0]}" {to}>&"${WRAPPER[1]}"
trap '' PIPE
trap 'say "\"token\":\"$token\",\"action\":\"cancel\""' TERM INT
say "$request"

last='' never_ran=yes
while IFS= read -r reply <&"$from"; do # never stop reading, and never close its input before this ends
  last=$reply
  case $reply in
    '{"event":"prepared",'*)
      never_ran=no
      durable "$reply" # the permit is bound to the proof in it, durably, and only then the gate opens
      say "\"token\":\"$token\",\"action\":\"go\""
      ;;
  esac
done
case $last in
  '{"event":"released",'* | '{"event":"held",'*) ;;
  *) # refused, or the wrapper has died: then inspect has the last word
    code=0
    inspected=$(contain inspect "$directory/receipts" "$id") || code=$?
    last=${inspected:-$last}
    if [ "$code" = "$no_receipt" ]; then last='{"event":"refused",' never_ran=yes; fi
    ;;
esac
# A quote inside a JSON string is escaped, so these patterns match fields and nothing else.
if [[ ($last == '{"event":"refused",'* && $never_ran == yes) || ($last == *'"state":"released"'* && $last == *'"empty":true'*) ]]; then
  rm "$permit" # the permit returns: on this evidence, and on no other
fi
if [[ $last =~ \"code\":([0-9]+) ]]; then
  exit "${BASH_REMATCH[1]}"
elif [[ $last =~ \"signal\":([0-9]+) ]]; then
  exit $((128 + BASH_REMATCH[1]))
fi
exit $no_status
