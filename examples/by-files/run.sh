#!/bin/sh
# A whole fit by files alone: some sites, a coordinator, and a folder that stands for the mail.
#
#   examples/by-files/run.sh FOLDER [OPTION...]
#
# works in FOLDER, which must not exist; options are those of fedsplit ask. SITES names other sites than all
# six, as in SITES="site1 site2". docs/by-files.md explains every command.
set -eu
rows=$(cd "$(dirname "$0")/../randhie" && pwd)
mkdir "$1" && cd "$1" && shift
sites=${SITES:-site1 site2 site3 site4 site5 site6}

# Once: every site makes its own key, and the coordinator signs it.
fedsplit keys coordinator/keys --host localhost
for site in $sites; do
    mkdir "$site"
    fedsplit keys "$site" --request "$site"
    fedsplit keys coordinator/keys --sign "$site/$site.csr"
    cp "coordinator/keys/clients/$site.crt" coordinator/keys/ca.crt "$site"
done

# The coordinator begins a study, which writes the first question.
mkdir mail
question=$(fedsplit ask coordinator/visits --keys coordinator/keys --family poisson "$@" \
    --formula "mdvis ~ logc + idp + linc + xage + female + physlm + disea + C(health)")
# Its hash is told to the sites by telephone.
hash=$(sha256sum coordinator/visits/study.json | cut -d' ' -f1)

while [ ! -e coordinator/visits/result.fedsplit ]; do
    cp "$question" mail
    file=mail/$(basename "$question")
    number=$(basename "$question" .fedsplit | cut -d- -f2)
    # Each site answers it. Without --approve, the owner is asked about the study at the terminal.
    for site in $sites; do
        fedsplit answer "$file" --data "$rows/$site.csv" --key "$site/$site.key" \
            --ca "$site/ca.crt" --folder "$site/state" --approve "$hash" \
            --out "mail/answer-$number-$site.fedsplit"
    done
    # The coordinator combines the answers: the next question, or the table.
    question=$(fedsplit combine coordinator/visits mail/answer-"$number"-*.fedsplit | tee table.txt)
done
cat table.txt

# The result goes to the sites, and is written into their logs.
cp coordinator/visits/result.fedsplit mail
for site in $sites; do
    fedsplit answer mail/result.fedsplit --data "$rows/$site.csv" --key "$site/$site.key" \
        --ca "$site/ca.crt" --folder "$site/state"
done
