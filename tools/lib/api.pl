#!/usr/bin/perl
# Public items of a crate from rustdoc's pages: api.pl DOC CRATE. Follows re-exports into the pages of other crates in DOC.
use strict;
use warnings;
use File::Basename qw(basename dirname);

my ($doc, $crate) = @ARGV;
my %seen;

sub slurp {
    my ($file) = @_;
    open my $in, '<:encoding(UTF-8)', $file or die "$file: $!\n";
    local $/;
    return scalar <$in>;
}

# Markup as text on one line.
sub text {
    my ($html) = @_;
    $html =~ s/<summary.*?<\/summary>|<a [^>]*class="tooltip".*?<\/a>//sg;
    $html =~ s/<[^>]*>//g;
    my %entity = (lt => '<', gt => '>', amp => '&', quot => '"', nbsp => ' ', '#39' => "'");
    $html =~ s/&([a-z0-9#]+);/$entity{$1} \/\/ die "unknown entity $1\n"/ge;
    $html =~ s/\s+/ /g;
    $html =~ s/\( /(/g;
    $html =~ s/,? \)/)/g;
    return $html =~ s/^ | $//gr;
}

# One item's page: its declaration, then the methods and traits that are its own.
sub item {
    my ($path, $file) = @_;
    return if $seen{$path}++;
    my $page = slurp($file);
    my ($kind) = basename($file) =~ /^(\w+)\./;
    my ($declaration) = $page =~ /<pre class="rust item-decl">(.*?)<\/pre>/s or die "$file declares nothing\n";
    # A member of a struct or an enum begins a line of its own. Those of a trait have sections below.
    my ($head, @members) = split /\n(?= {4}[^ }])/, $declaration;
    $members[-1] =~ s/\n\}.*//s if @members;
    $head =~ s/ \{.*//s if $kind eq 'trait';
    print "$path: ", text($head), "\n";
    unless ($kind eq 'trait') { print "$path: member ", text($_), "\n" for @members }
    # Methods of what it derefs to are told there.
    $page =~ s/<h2 id="deref-methods-.*?(?=<h2 id="(?!deref-methods-)|$)//s;
    # What follows holds for every type, or for a trait is told at the types.
    $page =~ s/<h2 id="(?:synthetic-implementations|blanket-implementations|foreign-impls|implementors)".*//s;
    while ($page =~ /<section id="[^"]*" class="([^"]*)">(.*?)<\/section>/sg) {
        my ($class, $section) = ($1, $2);
        next if $class =~ /trait-impl/;
        my ($level, $header) = $section =~ /<h([34]) class="code-header">(.*?)<\/h\1>/s or next;
        $header = text($header);
        next if $level == 3 && $header !~ / for /;
        print "$path: $header\n" unless $header =~ /^impl StructuralPartialEq /;
    }
}

# A module's page: its items, those of its modules, and what it re-exports.
sub module {
    my ($path, $directory) = @_;
    my $page = slurp("$directory/index.html");
    while ($page =~ /<dt[^>]*>(.*?)<\/dt>/sg) {
        my $entry = $1;
        my ($kind, $href) = $entry =~ /<a class="(\w+)" href="([^"]+)"/ or next;
        next if $href =~ /^https?:/;
        if ($entry =~ /<code>(pub use .*?)<\/code>/s) {
            reexport($path, $directory, text($1), $entry);
        } elsif ($kind eq 'mod') {
            my $name = dirname($href);
            print "${path}::$name: pub mod $name\n";
            module("${path}::$name", "$directory/$name");
        } else {
            my ($name) = $href =~ /^\w+\.(\w+)\.html$/ or die "$href is no item's page\n";
            item("${path}::$name", "$directory/$href");
        }
    }
}

sub reexport {
    my ($path, $directory, $use, $entry) = @_;
    print "$path: $use\n";
    my @links = $entry =~ /href="([^"#]+)"/g;
    my ($name) = $use =~ /(\w+);?$/;
    my $file = "$directory/$links[-1]";
    if (basename($file) eq 'index.html') {
        module("${path}::$name", dirname($file));
    } elsif (-e $file) {
        item("${path}::$name", $file);
    }
}

binmode STDOUT, ':encoding(UTF-8)';
my $out = '';
{
    open my $to, '>:encoding(UTF-8)', \$out or die $!;
    my $before = select $to;
    module($crate, "$doc/$crate");
    select $before;
}
utf8::decode($out);
print sort map { "$_\n" } split /\n/, $out;
